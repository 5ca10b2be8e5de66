"""Ask a running GRAFT server through the OpenAI client.

Start one first, for instance:

    python -m sglang.launch_server --model-path examples/tiny_pair/target \
        --speculative-algorithm GRAFT --speculative-draft-model-path examples/tiny_pair/drafter \
        --port 30000

then: python examples/quickstart.py --url http://127.0.0.1:30000
"""

from __future__ import annotations

import argparse

from openai import OpenAI


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:30000")
    parser.add_argument("--prompt", default="Write a function to add two numbers.")
    arguments = parser.parse_args()

    client = OpenAI(base_url=f"{arguments.url}/v1", api_key="not-needed")
    reply = client.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": arguments.prompt}],
        temperature=0,
        max_tokens=64,
        # SGLang's own extension: the acceptance statistics come back with the answer.
        extra_body={"return_spec_tokens_details": True},
    )
    details = reply.sglext["spec_tokens_details"]
    accept_length = 1 + details["spec_num_correct_drafts"] / details["spec_verify_ct"]
    print(reply.choices[0].message.content)
    print(f"accept length {accept_length:.2f}, nodes a round {details['spec_cap_length']:.1f}")


if __name__ == "__main__":
    main()
