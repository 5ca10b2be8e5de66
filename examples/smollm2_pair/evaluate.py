"""MAT of the SmolLM2 drafter on the held-out prompts (``--help`` for options).

The target's greedy answers to the ``eval`` rows are made once and kept with their hidden states;
the rounds are then replayed for the chain and for trees of several budgets.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean

import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from examples.dflash_training.data import read_jsonl, wrap_prompt
from examples.dflash_training.evaluate import check_identity
from examples.dflash_training.positions import by_position
from examples.dflash_training.replay import replay
from examples.dflash_training.sequences import TokenSequence, generate
from examples.dflash_training.teacher import TeacherCache
from graft_sglang.reference.drafter import load_drafter

from .pair import BLOCK, TOP, drafter_config, load_target
from .prepare import HERE

TASKS = ("gsm8k", "math500", "humaneval", "mbpp", "alpaca")
NEW_TOKENS = 96


def eval_prompts(
    tokenizer: PreTrainedTokenizerBase, folder: Path, per_task: int
) -> list[tuple[str, list[int]]]:
    """The first ``per_task`` held-out rows of every task, wrapped and through the chat template."""
    prompts = []
    for task in TASKS:
        rows = [r for r in read_jsonl(folder / f"{task}.jsonl") if r["split"] == "eval"]
        for row in rows[:per_task]:
            message = [{"role": "user", "content": wrap_prompt(task, row["prompt"])}]
            text = tokenizer.apply_chat_template(
                message, tokenize=False, add_generation_prompt=True
            )
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            prompts.append((task, ids))
    return prompts


def stop_ids(target: PreTrainedModel) -> list[int]:
    """The target's end-of-answer tokens."""
    ends = target.generation_config.eos_token_id
    return ends if isinstance(ends, list) else [ends]


def eval_answers(
    target: PreTrainedModel, prompts: list[tuple[str, list[int]]], stored: Path
) -> list[TokenSequence]:
    """The target's greedy answers, a block longer than what is counted; made once."""
    if stored.exists():
        rows = json.loads(stored.read_text())
        return [TokenSequence(r["tokens"], r["boundary"], r["task"]) for r in rows]
    ids = [p for _, p in prompts]
    answers = generate(target, ids, NEW_TOKENS + BLOCK, stop_ids(target), batch=10)
    sequences = [
        TokenSequence(p + a, len(p), task) for (task, p), a in zip(prompts, answers, strict=True)
    ]
    stored.parent.mkdir(parents=True, exist_ok=True)
    stored.write_text(json.dumps([vars(s) for s in sequences]))
    return sequences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=HERE / "target")
    parser.add_argument("--drafter", type=Path, default=HERE / "drafter")
    parser.add_argument("--prompts", type=Path, required=True, help="folder of <task>.jsonl")
    parser.add_argument("--runs", type=Path, required=True, help="folder for the cached answers")
    parser.add_argument("--out", type=Path, default=HERE / "drafter" / "eval.json")
    parser.add_argument("--per-task", type=int, default=8)
    parser.add_argument("--identity", type=int, default=0, help="prompts for the real loop")
    parser.add_argument("--only-prepare", action="store_true", help="make the answers and stop")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    target = load_target(args.target)
    tokenizer = AutoTokenizer.from_pretrained(args.target)
    prompts = eval_prompts(tokenizer, args.prompts, args.per_task)
    folder = args.runs / f"eval{args.per_task}"
    sequences = eval_answers(target, prompts, folder / "answers.json")
    drafter = None if args.only_prepare else load_drafter(args.drafter)
    cfg = drafter_config(target) if drafter is None else drafter.cfg
    layer_ids = cfg.target_layer_ids
    cache = TeacherCache(folder, sequences, len(layer_ids) * target.config.hidden_size, TOP)
    cache.fill(target, layer_ids)
    if drafter is None:
        return
    embedding = target.get_input_embeddings().weight.detach()
    tasks: dict[str, dict[str, dict[str, float]]] = {}
    for task in TASKS:
        chosen = [i for i, s in enumerate(sequences) if s.task == task]
        tasks[task] = replay(drafter, embedding, embedding, cache, chosen)
    report: dict[str, object] = {
        "prompts_per_task": args.per_task,
        "new_tokens": NEW_TOKENS,
        "mat": {m: round(mean(t[m]["mat"] for t in tasks.values()), 4) for m in tasks["gsm8k"]},
        "mat_novel": {
            m: round(mean(t[m]["mat_novel"] for t in tasks.values()), 4) for m in tasks["gsm8k"]
        },
        "by_position": by_position(drafter, embedding, embedding, cache, range(len(sequences))),
        "tasks": tasks,
    }
    if args.identity:
        step = max(1, len(prompts) // args.identity)
        chosen_prompts = [p for _, p in prompts[::step]][: args.identity]
        report["real_loop"] = check_identity(
            target, drafter, chosen_prompts, NEW_TOKENS, stop_ids(target), (0, 64)
        )
    args.out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
