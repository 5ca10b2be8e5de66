"""Methods side by side on real servers: tokens/s, accept length, nodes, identity."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

LADDER = "none,dflash,ddtree:8,ddtree:16,ddtree:32,ddtree:64,ddtree:128"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The pair, the prompts, the methods."""
    parser.add_argument("--model", required=True, help="folder of the target model")
    parser.add_argument("--draft-model", required=True, help="folder of its DFlash drafter")
    parser.add_argument(
        "--prompts", required=True, nargs="+", type=Path, metavar="FILE",
        help='*.jsonl with "prompt" (and "id", "task", "split"), or folders of them',
    )  # fmt: skip
    parser.add_argument("--split", help="only rows of this split")
    parser.add_argument("--tasks", help="only these, comma-separated")
    parser.add_argument("--per-task", type=int, default=4, metavar="N", help="default: 4")
    parser.add_argument("--tokens", type=int, default=96, help="new tokens (default 96)")
    parser.add_argument(
        "--methods", default=LADDER,
        help="comma-separated: none, dflash, scorer[@beta]:budget, scorer[@beta]:policy; the "
        f"first is the base (default {LADDER})",
    )  # fmt: skip
    parser.add_argument("--tdes-path", help="TDES checkpoint")
    parser.add_argument("--saba-path", help="fitted SABA file")
    parser.add_argument("--max-budget", type=int, default=128, help="default: 128")
    parser.add_argument("--concurrency", type=int, default=1, help="requests at once (default 1)")
    parser.add_argument("--dtype", default="float32", help="default: float32")
    parser.add_argument(
        "--server-arg", action="append", default=[], metavar="ARG",
        help="a further argument of launch_server; may be repeated",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write rows and answers")


def run(arguments: argparse.Namespace) -> int:
    """Serve, ask, print; 1 if an answer in float32 differs from the first method's."""
    from dataclasses import asdict
    from functools import partial

    from tqdm import tqdm

    from graft_sglang.benchmarks.differences import first_differences
    from graft_sglang.benchmarks.environment import environment
    from graft_sglang.benchmarks.methods import parse_method
    from graft_sglang.benchmarks.serve import Bench, Pair, compare
    from graft_sglang.benchmarks.serve_report import ALL, as_rows, as_table, lines

    try:
        methods = [parse_method(name) for name in arguments.methods.split(",")]
        prompts = _chats(arguments)
    except ValueError as error:
        raise SystemExit(f"graft-sglang bench serve: {error}") from error
    pair = Pair(
        arguments.model,
        arguments.draft_model,
        arguments.dtype,
        arguments.max_budget,
        arguments.tdes_path,
        arguments.saba_path,
        tuple(arguments.server_arg),
    )
    where = environment()
    with Bench(pair, methods) as bench, tqdm(total=len(prompts), desc="prompts") as bar:
        answers = compare(
            bench, methods, prompts, arguments.tokens, arguments.concurrency, bar.update
        )
        differences = first_differences(answers, prompts, partial(bench.two_best, methods[0]))
    found = lines(answers)
    print(
        f"{len(prompts)} prompts x {arguments.tokens} tokens, {arguments.concurrency} at once, "
        f"{arguments.dtype}, greedy"
    )
    for name, value in where.items():
        print(f"{name}: {value}")
    tasks = list(dict.fromkeys(line.task for line in found))
    for task in sorted(tasks, key=lambda task: task != ALL):
        print(f"\n{task}\n{as_table(found, task)}")
    for difference in differences:
        print(
            f"{difference.method} on {difference.prompt}: differs after {difference.place} tokens, "
            f"where the target's two best are {difference.margin:.4f} nats apart"
        )
    if arguments.json:
        document = {
            "environment": where,
            "tokens": arguments.tokens,
            "concurrency": arguments.concurrency,
            "dtype": arguments.dtype,
            "rows": as_rows(found),
            "differences": [asdict(difference) for difference in differences],
            "answers": [asdict(answer) for answer in answers],
        }
        arguments.json.write_text(json.dumps(document) + "\n", encoding="utf-8")
    differ = any(line.identical < line.prompts for line in found)
    return 1 if differ and arguments.dtype == "float32" else 0


def _chats(arguments: argparse.Namespace) -> list:
    """Prompts of all tasks by turns, as the target's chat template puts them."""
    from itertools import chain, zip_longest

    from transformers import AutoTokenizer

    from graft_sglang.benchmarks.serve import Asked
    from graft_sglang.evaluation.datasets import read_prompts

    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    wanted = arguments.tasks.split(",") if arguments.tasks else None
    by_task: dict[str, list[Asked]] = {}
    for prompt in read_prompts(arguments.prompts, arguments.split):
        mine = by_task.setdefault(prompt.task, [])
        if (wanted and prompt.task not in wanted) or len(mine) >= arguments.per_task:
            continue
        message = [{"role": "user", "content": prompt.text}]
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        mine.append(Asked(prompt.id, prompt.task, tuple(ids)))
    missing = [task for task in wanted or () if not by_task.get(task)]
    if missing:
        raise ValueError(f"There are no prompts of {', '.join(missing)}.")
    turns = zip_longest(*by_task.values())
    return [asked for asked in chain.from_iterable(turns) if asked is not None]
