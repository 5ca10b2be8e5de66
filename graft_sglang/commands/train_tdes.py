"""Train a TDES checkpoint from recorded rounds."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graft_sglang.scorers.tdes.train import TrainOptions
    from graft_sglang.traces import RoundRecord


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Traces, target, output and the training's settings."""
    parser.add_argument(
        "--traces", required=True, nargs="+", metavar="DIR", help="folders of recorded rounds"
    )
    parser.add_argument("--target", required=True, help="folder of the target model")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="the checkpoint")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="train on these tasks only")
    parser.add_argument("--split-seed", type=int, default=0, metavar="N", help="default: 0")
    parser.add_argument(
        "--report-budget", type=int, default=64, metavar="N",
        help="nodes of the trees whose MAT is reported each epoch (default: 64)",
    )  # fmt: skip
    add_training_arguments(parser)


def add_training_arguments(parser: argparse.ArgumentParser) -> None:
    """The settings of the training itself; the paper's values are the defaults."""
    parser.add_argument("--epochs", type=int, default=8, metavar="N", help="default: 8")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="default: 0.002")
    parser.add_argument("--weight-decay", type=float, default=1e-4, help="default: 0.0001")
    parser.add_argument("--width", type=int, default=128, metavar="M", help="default: 128")
    parser.add_argument("--batch-rounds", type=int, default=64, metavar="N", help="default: 64")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")
    parser.add_argument("--weight-kl", type=float, default=1.0, help="default: 1")
    parser.add_argument("--weight-pair", type=float, default=1.0, help="default: 1")
    parser.add_argument("--weight-bce", type=float, default=0.25, help="default: 0.25")
    parser.add_argument("--margin", type=float, default=1.0, help="gamma (default: 1)")
    parser.add_argument(
        "--keep", choices=("best", "last"), default="best",
        help="the epoch of the lowest validation KL, or the last one (default: best)",
    )  # fmt: skip


def training_options(arguments: argparse.Namespace) -> TrainOptions:
    """What ``add_training_arguments`` parsed."""
    from graft_sglang.scorers.tdes.losses import LossWeights
    from graft_sglang.scorers.tdes.train import TrainOptions

    return TrainOptions(
        epochs=arguments.epochs,
        learning_rate=arguments.learning_rate,
        weight_decay=arguments.weight_decay,
        width=arguments.width,
        batch_rounds=arguments.batch_rounds,
        seed=arguments.seed,
        losses=LossWeights(
            kl=arguments.weight_kl,
            pair=arguments.weight_pair,
            bce=arguments.weight_bce,
            margin=arguments.margin,
        ),
        keep_best=arguments.keep == "best",
    )


def run(arguments: argparse.Namespace) -> int:
    """Train, report each epoch, write the checkpoint; 1 with one sentence where it can't."""
    try:
        _train(arguments)
    except ValueError as error:
        print(f"graft-sglang train-tdes: {error}", file=sys.stderr)
        return 1
    return 0


def _train(arguments: argparse.Namespace) -> None:
    from graft_sglang.evaluation.tdes import mat_report, target_of
    from graft_sglang.scorers.tdes.checkpoint import CheckpointInfo, save_checkpoint
    from graft_sglang.scorers.tdes.train import train
    from graft_sglang.traces import read_folders, split_by_prompt, task_of

    meta, records = read_folders(arguments.traces)
    embedding = target_of(meta, arguments.target)
    if arguments.tasks:
        records = [r for r in records if task_of(r.request_id) in arguments.tasks]
    parts = split_by_prompt(records, arguments.split_seed)
    result = train(
        parts["train"],
        parts["validation"],
        embedding,
        training_options(arguments),
        evaluate=mat_report(parts["validation"], embedding, arguments.report_budget),
    )
    vocabulary, hidden = embedding.shape
    info = CheckpointInfo(
        target_fingerprint=meta.target_fingerprint,
        vocab_size=vocabulary,
        hidden_size=hidden,
        depth=meta.depth,
        candidates=meta.candidates,
        width=arguments.width,
        data={
            "split_seed": arguments.split_seed,
            "drafter": meta.drafter,
            **{part: _summary(rounds) for part, rounds in parts.items() if part != "report"},
        },
        losses=result.epochs,
        chosen_epoch=result.chosen_epoch,
        command=shlex.join(["graft-sglang", *sys.argv[1:]]),
    )
    save_checkpoint(arguments.out, result.model, info)
    print(f"Wrote {arguments.out} (epoch {result.chosen_epoch} of {arguments.epochs})")


def _summary(records: list[RoundRecord]) -> dict[str, object]:
    from graft_sglang.traces import task_of

    prompts = {record.request_id for record in records}
    tasks = Counter(task_of(prompt) for prompt in prompts)
    return {"rounds": len(records), "prompts": len(prompts), "tasks": dict(sorted(tasks.items()))}
