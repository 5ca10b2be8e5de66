"""TDES on recorded rounds: beta sweep, fixed budgets, mismatch by task, cross-task training."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from graft_sglang.commands.train_tdes import add_training_arguments, training_options

if TYPE_CHECKING:
    from graft_sglang.benchmarks.tdes_report import TDESReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Traces, pair, checkpoint, output, budgets and betas."""
    parser.add_argument(
        "--traces", required=True, nargs="+", metavar="DIR", help="folders of recorded rounds"
    )
    parser.add_argument(
        "--report-traces", nargs="+", metavar="DIR",
        help="report on all rounds of these folders (say, of other prompts) instead of a split",
    )  # fmt: skip
    parser.add_argument("--target", required=True, help="folder of the target model")
    parser.add_argument("--checkpoint", required=True, metavar="DIR", help="from train-tdes")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="tables and plots")
    parser.add_argument("--budgets", type=int, nargs="+", default=[16, 32, 64], metavar="N")
    parser.add_argument(
        "--beta-budget", type=int, default=64, metavar="N",
        help="nodes for the beta sweep and the tables by task (default: 64)",
    )  # fmt: skip
    parser.add_argument("--betas", type=float, nargs="+", metavar="X", help="for both forms")
    parser.add_argument(
        "--train-on", default="gsm8k", metavar="TASK",
        help="train a scorer on this task alone for the cross-task table (default: gsm8k)",
    )  # fmt: skip
    parser.add_argument("--no-cross-task", action="store_true", help="leave that table out")
    parser.add_argument("--split-seed", type=int, metavar="N", help="default: the checkpoint's own")
    add_training_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the tables, write them with the plots; 1 with one sentence if it can't."""
    try:
        report = _measure(arguments)
    except ValueError as error:
        print(f"graft-sglang bench tdes: {error}", file=sys.stderr)
        return 1
    print(report.as_markdown())
    for path in report.write(arguments.out):
        print(f"Wrote {path}")
    return 0


def _measure(arguments: argparse.Namespace) -> TDESReport:
    from graft_sglang.benchmarks.environment import environment
    from graft_sglang.benchmarks.tdes import (
        BETAS,
        compare,
        compare_tasks,
        cross_task,
        replay_methods,
        sweep,
    )
    from graft_sglang.benchmarks.tdes_report import TDESReport
    from graft_sglang.evaluation.replay import replayable
    from graft_sglang.evaluation.tdes import FORMS, target_of
    from graft_sglang.scorers.tdes.checkpoint import check_target, load_checkpoint
    from graft_sglang.scorers.tdes.tables import ProjectedTables
    from graft_sglang.traces import read_folders, split_by_prompt

    meta, records = read_folders(arguments.traces)
    embedding = target_of(meta, arguments.target)
    model, info = load_checkpoint(arguments.checkpoint)
    check_target(info, embedding, arguments.checkpoint)
    seed = info.data.get("split_seed", 0) if arguments.split_seed is None else arguments.split_seed
    parts = split_by_prompt(records, seed)
    if arguments.report_traces:
        other, parts["report"] = read_folders(arguments.report_traces)
        target_of(other, arguments.target)
    validation, reported = replayable(parts["validation"]), replayable(parts["report"])
    betas = {name: tuple(arguments.betas or BETAS[name]) for name in FORMS}
    budget = arguments.beta_budget
    tables = ProjectedTables.project(model, embedding)
    rows = sweep(tables, validation, reported, betas, budget)
    chosen = {row.form: row.beta for row in rows if row.chosen}
    budgets = sorted({*arguments.budgets, budget})
    scored = replay_methods(tables, reported, chosen, budgets)
    crossed = []
    if not arguments.no_cross_task:
        crossed = cross_task(
            parts,
            arguments.train_on,
            embedding,
            training_options(arguments),
            reported,
            betas,
            budget,
        )
    facts = environment()
    facts["drafter"] = meta.drafter
    facts["reported"] = f"{len(reported)} rounds of {len(set(reported.request_ids))} prompts"
    facts["validation"] = f"{len(validation)} rounds of {len(set(validation.request_ids))} prompts"
    return TDESReport(
        facts=facts,
        budget=budget,
        sweep=rows,
        methods=compare(scored, budgets),
        tasks=compare_tasks(scored, budget),
        cross_task=crossed,
        trained_on=arguments.train_on,
    )
