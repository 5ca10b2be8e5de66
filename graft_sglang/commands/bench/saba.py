"""How near the budget policies come to the best budget of every round, on recorded rounds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graft_sglang.commands.fit_saba import add_scorer_arguments, build_scorer, parse_grid

if TYPE_CHECKING:
    from graft_sglang.budgeters.saba.adaptive import AdaptivePolicy
    from graft_sglang.budgeters.saba.document import SabaDocument
    from graft_sglang.budgeters.saba.oracle import Tracking
    from graft_sglang.budgeters.saba.selection_cost import SelectionTimes

PAPER_BUDGETS = "32,48,64,80,96,128"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Traces, fitted file, budgets, outputs."""
    parser.add_argument(
        "--traces", type=Path, required=True, metavar="DIR", help="rounds the fit has not seen"
    )
    parser.add_argument("--saba", type=Path, required=True, metavar="FILE", help="the fitted file")
    parser.add_argument(
        "--cost-traces",
        type=Path,
        metavar="DIR",
        help="rounds of varied budgets to take the true costs from (default: the fitted file's)",
    )
    parser.add_argument(
        "--budgets",
        default=PAPER_BUDGETS,
        help=f"budgets replayed and chosen from (default: the paper's {PAPER_BUDGETS})",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="replay that many rounds only")
    parser.add_argument(
        "--repeats", type=int, default=1000, metavar="N", help="decisions timed (default: 1000)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw them (PNG)")
    add_scorer_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Replay, print the tables, write JSON and PNG where asked; returns 0, or 1 with a reason."""
    try:
        _report(arguments)
    except ValueError as error:
        print(f"graft-sglang bench saba: {error}", file=sys.stderr)
        return 1
    return 0


def _report(arguments: argparse.Namespace) -> None:
    import json
    from functools import partial
    from itertools import islice

    from tqdm import tqdm

    from graft_sglang.benchmarks.environment import environment
    from graft_sglang.budgeters.saba import oracle
    from graft_sglang.budgeters.saba.document import load
    from graft_sglang.budgeters.saba.plots import plot_tracking
    from graft_sglang.budgeters.saba.replay import replay
    from graft_sglang.traces import iter_rounds, read_meta

    document = load(arguments.saba)
    budgets = parse_grid(arguments.budgets)
    meta = read_meta(arguments.traces)
    scorer = build_scorer(arguments, meta.depth, meta.candidates)
    rounds = list(islice(iter_rounds(arguments.traces), arguments.limit))
    replayed = replay(rounds, scorer, budgets, partial(tqdm, desc="replay", unit="round"))
    costs = oracle.round_costs(replayed, _true_cost(arguments, document))
    choices = {
        name: oracle.policy_choices(
            policy, replayed, costs, scorer, partial(tqdm, desc=name, unit="round")
        )
        for name, policy in policies(document, budgets).items()
    }
    for place, budget in enumerate(replayed.budgets):
        choices[f"fixed {budget}"] = oracle.fixed_choices(replayed, place)
    tracking = [oracle.track(name, chosen, replayed, costs) for name, chosen in choices.items()]
    tasks = oracle.by_task(choices, replayed, costs)
    difficulty = oracle.by_difficulty(replayed, costs)
    times = selection_table(document, arguments.repeats)
    where = environment()
    print("\n".join(f"{name}: {value}" for name, value in where.items()))
    print(f"{len(replayed.records)} rounds, budgets {budgets}\n")
    print(tracking_table(tracking))
    print("\n| task | best fixed | its tokens/s | best policy | its tokens/s | ratio |")
    print("|---|---:|---:|---|---:|---:|")
    for row in tasks:
        print(
            f"| {row.task} | {row.fixed} | {row.fixed_tps:.2f} | {row.policy} | "
            f"{row.policy_tps:.2f} | {row.policy_tps / row.fixed_tps:.3f} |"
        )
    print("\n| rounds | best budget | tokens a round at the largest |\n|---|---:|---:|")
    for name, best, mat in zip(difficulty.names, difficulty.best, difficulty.mat, strict=True):
        print(f"| {name} | {best} | {mat:.2f} |")
    print("\n| policy | batch | select, median ms | p99 ms | observe, median ms |")
    print("|---|---:|---:|---:|---:|")
    for name, size, ms in times:
        print(
            f"| {name} | {size} | {ms.select_median:.4f} | {ms.select_p99:.4f} | "
            f"{ms.observe_median:.4f} |"
        )
    if arguments.json:
        document_out = as_json(where, tracking, tasks, difficulty, times)
        arguments.json.write_text(json.dumps(document_out, indent=2) + "\n", encoding="utf-8")
    if arguments.plot:
        plot_tracking(arguments.plot, tracking, difficulty)


def policies(document: SabaDocument, grid: list[int]) -> dict[str, AdaptivePolicy]:
    """Every adaptive policy over ``grid``, with and without its online correction."""
    from graft_sglang.budgeters.expected_throughput import ExpectedThroughputPolicy
    from graft_sglang.budgeters.saba.policy import SabaPolicy
    from graft_sglang.budgeters.saba.table import SabaTablePolicy

    return {
        "saba": SabaPolicy(document, grid, online=False),
        "saba, online": SabaPolicy(document, grid, online=True),
        "saba_table": SabaTablePolicy(document, grid, online=True),
        "saba_table, not online": SabaTablePolicy(document, grid, online=False),
        "expected_throughput": ExpectedThroughputPolicy.from_document(document, grid, online=True),
        "expected_throughput, not online": ExpectedThroughputPolicy.from_document(
            document, grid, online=False
        ),
        "expected_throughput, no file": ExpectedThroughputPolicy(grid),
    }


def selection_table(document: SabaDocument, repeats: int) -> list[tuple[str, int, SelectionTimes]]:
    """Policy, batch size and times of a decision over the file's grid."""
    from graft_sglang.budgeters.saba.selection_cost import selection_ms

    rows = []
    for name, policy in policies(document, list(document.grid)).items():
        for batch_size in (1, 8):
            rows.append((name, batch_size, selection_ms(policy, batch_size, repeats)))
    return rows


def tracking_table(tracking: list[Tracking]) -> str:
    """Markdown: Table 2's columns and Figure 6's two figures."""
    lines = [
        "| policy | nodes | MAT | tokens/s (modelled) | oracle retained | rounds >= 95% |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {t.name} | {t.nodes:.1f} | {t.mat:.3f} | {t.tokens_per_second:.2f} | "
        f"{100 * t.mean_retained:.1f}% | {100 * t.share_close:.1f}% |"
        for t in tracking
    ]
    return "\n".join(lines)


def as_json(
    where: dict[str, str],
    tracking: list[Tracking],
    tasks: list[Any],
    difficulty: Any,
    times: list[tuple[str, int, SelectionTimes]],
) -> dict[str, Any]:
    """Everything the tables hold."""
    from dataclasses import asdict

    return {
        "environment": where,
        "tracking": [
            {
                "policy": t.name,
                "nodes": t.nodes,
                "mat": t.mat,
                "tokens_per_second": t.tokens_per_second,
                "retained": t.mean_retained,
                "share_close": t.share_close,
            }
            for t in tracking
        ],
        "tasks": [asdict(row) for row in tasks],
        "difficulty": {
            "names": list(difficulty.names),
            "budgets": difficulty.budgets.tolist(),
            "best": difficulty.best,
            "mat": difficulty.mat,
            "relative_tps": difficulty.relative_tps.tolist(),
        },
        "selection_ms": [
            {"policy": name, "batch_size": size, **asdict(ms)} for name, size, ms in times
        ],
    }


def _true_cost(arguments: argparse.Namespace, document: SabaDocument) -> Any:
    from graft_sglang.budgeters.saba.cost import build_table, fit_affine
    from graft_sglang.budgeters.saba.pipeline import timed_rounds
    from graft_sglang.traces import read_rounds

    if not arguments.cost_traces:
        return document.cost_table
    timed = timed_rounds(read_rounds(arguments.cost_traces))
    fitted = fit_affine(timed)
    return build_table(timed.subset(~fitted.outliers), fitted.cost)[0]
