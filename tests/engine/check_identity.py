"""Token identity on many prompts, budgets and servers: slower than a test, run by hand.

    python tests/engine/check_identity.py --prompts FOLDER [--each 8] [--json FILE]

FOLDER holds *.jsonl files with a "prompt" field. The reference is the same target without
speculation, on its own server. Exits with 1 if any output differs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from pathlib import Path

from prompts import chat
from server import DFLASH, FLOAT32, GRAFT, Server, ids, mat

TOKENS = 96
LONGEST = 1_200
BUDGETS = (1, 7, 16, 63, 200)
SCRIPTED = (*GRAFT, "--graft-import", "graft_test_parts", "--graft-budget-policy", "scripted")
SERVERS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "overlap on": (SCRIPTED, BUDGETS),
    "overlap off": ((*SCRIPTED, "--disable-overlap-schedule"), BUDGETS),
    "chain": ((*SCRIPTED, "--graft-tree-builder", "chain"), (63,)),
    "built-in DFLASH": (DFLASH, (0,)),
}


def read(folder: Path, each: int) -> list[list[int]]:
    """The first ``each`` prompts of every file that fit, as chats."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        rows = [json.loads(line)["prompt"] for line in path.read_text().splitlines()]
        short = [tokens for row in rows[: 8 * each] if len(tokens := chat(row)) <= LONGEST]
        found += short[:each]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--each", type=int, default=8)
    parser.add_argument("--server", action="append", choices=SERVERS, help="only this one")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    prompts = read(arguments.prompts, arguments.each)
    print(f"{len(prompts)} prompts x {TOKENS} tokens", flush=True)
    reference = Server(*FLOAT32)
    expected = ids(reference.outputs(prompts, 8, tokens=TOKENS))
    reference.stop()
    rows = []
    script = Path(tempfile.mkdtemp()) / "budgets.json"
    script.write_text("[16]")  # of the server's own warm-up
    for name in arguments.server or SERVERS:
        flags, budgets = SERVERS[name]
        server = Server(*FLOAT32, *flags, GRAFT_TEST_BUDGETS=str(script))
        for budget, batch in itertools.product(budgets, (1, 8)):
            script.write_text(json.dumps([budget]))
            answers = server.outputs(prompts, batch, tokens=TOKENS)
            same = sum(a == b for a, b in zip(ids(answers), expected, strict=True))
            rows.append({"server": name, "budget": budget, "batch": batch, "identical": same,
                         "prompts": len(prompts), "mat": round(mat(answers), 3)})  # fmt: skip
            print(rows[-1], flush=True)
        server.stop()
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["identical"] == row["prompts"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
