"""Record decoding rounds: serve a pair with ``--graft-trace-dir`` and ask it a file of prompts."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graft_sglang.evaluation.datasets import Prompt


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The pair, the prompts, the folder, the server's settings."""
    parser.add_argument("--target", required=True, help="folder of the target model")
    parser.add_argument("--drafter", required=True, help="folder of its DFlash drafter")
    parser.add_argument(
        "--prompts", required=True, nargs="+", type=Path, metavar="FILE",
        help='*.jsonl with "prompt" (and "id", "task", "split"), or folders of them',
    )  # fmt: skip
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the traces")
    parser.add_argument("--split", help="only rows of this split")
    parser.add_argument("--per-task", type=int, metavar="N", help="prompts of each file")
    parser.add_argument("--budget", type=int, default=64, help="nodes of a tree (default 64)")
    parser.add_argument(
        "--sweep", action="store_true",
        help="another budget every round, up to --budget: rounds to fit costs on",
    )  # fmt: skip
    parser.add_argument("--tokens", type=int, default=256, help="new tokens (default 256)")
    parser.add_argument("--concurrency", type=int, default=1, help="requests at once (default 1)")
    parser.add_argument("--dtype", default="float32", help="of the server (default float32)")
    parser.add_argument(
        "--server-arg", action="append", default=[], metavar="ARG",
        help="a further argument of launch_server; may be repeated",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Serve, ask, stop; prints what was recorded."""
    from concurrent.futures import ThreadPoolExecutor

    from tqdm import tqdm

    from graft_sglang.evaluation.datasets import read_prompts
    from graft_sglang.server import LocalServer
    from graft_sglang.traces import by_request, read_rounds

    try:
        prompts = read_prompts(arguments.prompts, arguments.split, arguments.per_task)
    except ValueError as error:
        raise SystemExit(f"graft-sglang record: {error}") from error
    budget = ["--graft-budget", str(arguments.budget)]
    if arguments.sweep:
        budget = ["--graft-budget-policy", "sweep", "--graft-max-budget", str(arguments.budget)]
    flags = [
        "--model-path", arguments.target, "--dtype", arguments.dtype,
        "--speculative-algorithm", "GRAFT", "--speculative-draft-model-path", arguments.drafter,
        *budget, "--graft-trace-dir", arguments.out,
        "--log-level", "warning", "--skip-server-warmup", *arguments.server_arg,
    ]  # fmt: skip
    failed = 0
    with LocalServer(flags) as server, ThreadPoolExecutor(arguments.concurrency) as pool:

        def ask(prompt: Prompt) -> str | None:
            return _ask(server.url, prompt, arguments.tokens)

        for reason in tqdm(pool.map(ask, prompts), total=len(prompts), desc="prompts"):
            if reason is not None:
                failed += 1
                tqdm.write(f"left out: {reason}")
    rounds = read_rounds(arguments.out)
    requests = by_request(rounds)
    print(
        f"{arguments.out}: {len(rounds)} rounds of {len(requests)} requests; "
        f"{failed} prompts were refused"
    )
    return 0 if requests else 1


def _ask(url: str, prompt: Prompt, tokens: int) -> str | None:
    """One greedy chat answer; returns why the server refused it."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    body = {
        "model": "default",
        "messages": [{"role": "user", "content": prompt.text}],
        "temperature": 0,
        "max_tokens": tokens,
        "rid": prompt.id,
    }
    request = Request(
        f"{url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urlopen(request, timeout=1800) as reply:
            reply.read()
    except HTTPError as error:
        return f"{prompt.id}: {error.read().decode(errors='replace')[:200]}"
    return None
