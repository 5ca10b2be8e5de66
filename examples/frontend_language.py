"""SGLang's frontend language against a running GRAFT server: gen, fork and a regex.

Start a server as in quickstart.py, then:
python examples/frontend_language.py --url http://127.0.0.1:30000
"""

from __future__ import annotations

import argparse
from typing import Any

import sglang as sgl


@sgl.function
def two_opinions(s: Any, question: str) -> None:
    """One question, two continuations of the same prefix, and a rating that must be a digit."""
    s += "Question: " + question + "\n"
    branches = s.fork(2)
    for branch, start in zip(branches, ("In favour: ", "Against: "), strict=True):
        branch += start
        branch += sgl.gen("opinion", max_tokens=24, temperature=0, stop="\n")
    s += "In favour: " + branches[0]["opinion"] + "\nAgainst: " + branches[1]["opinion"] + "\n"
    s += "Rating from 0 to 9: " + sgl.gen("rating", max_tokens=4, temperature=0, regex="[0-9]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:30000")
    arguments = parser.parse_args()

    sgl.set_default_backend(sgl.RuntimeEndpoint(arguments.url))
    state = two_opinions.run(question="Should a library be quiet?")
    print(state.text())
    print(f"rating: {state['rating']}")


if __name__ == "__main__":
    main()
