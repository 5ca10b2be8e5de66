"""Fit SABA's gain and cost from recorded rounds; a few minutes for some ten thousand rounds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graft_sglang.budgeters.saba.cost import CostFit, TimedRounds
    from graft_sglang.budgeters.saba.document import SabaDocument
    from graft_sglang.contracts import EdgeScorer

PAPER_GRID = "32:512:16"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Traces, scorer, grid, output."""
    parser.add_argument(
        "--traces", type=Path, required=True, metavar="DIR", help="rounds to fit the gain on"
    )
    parser.add_argument(
        "--cost-traces",
        type=Path,
        action="append",
        metavar="DIR",
        help="rounds of varied budgets, recorded on the machine that serves, to fit the cost on "
        "(default: --traces); may be repeated",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("saba.json"), metavar="FILE", help="default: saba.json"
    )
    parser.add_argument(
        "--grid",
        default=PAPER_GRID,
        help=f"budgets to choose from: LOW:HIGH:STEP, or numbers parted by commas, such as "
        f"0,1,2,4,8,16,32,64 for a CPU (default: the paper's {PAPER_GRID})",
    )
    parser.add_argument("--bins", type=int, default=8, help="states of the gain table (default 8)")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="the cost's residuals (default: OUT.png)"
    )
    parser.add_argument("--hardware", help="name of the serving machine (default: this one)")
    add_scorer_arguments(parser)


def add_scorer_arguments(parser: argparse.ArgumentParser) -> None:
    """Which edge scorer the replayed trees are built with."""
    parser.add_argument(
        "--edge-scorer", default="ddtree", metavar="NAME", help="registry name (default ddtree)"
    )
    parser.add_argument("--tdes-path", type=Path, metavar="DIR", help="checkpoint of a TDES scorer")
    parser.add_argument("--beta", type=float, default=0.2, help="its residual scale (default 0.2)")
    parser.add_argument(
        "--target", type=Path, metavar="DIR", help="folder of the target; TDES reads its embedding"
    )


def run(arguments: argparse.Namespace) -> int:
    """Fit, print what was found, write the file and the plot; returns 0, or 1 with a reason."""
    from graft_sglang.budgeters.saba.plots import plot_cost_fit

    try:
        document, timed, cost_fit = _fit(arguments)
    except ValueError as error:
        print(f"graft-sglang fit-saba: {error}", file=sys.stderr)
        return 1
    document.save(arguments.out)
    scale = sum(p * s for p, s in zip(document.phi, document.state_mean, strict=True))
    cost = document.cost
    print(f"phi = {document.phi}; phi . s = {scale:.2f} nodes on the mean state")
    print(f"C(B) = {cost.c0:.4g} + {cost.c1:.4g} B + {cost.c2:.4g} B prefix, seconds")
    print(f"best fixed budget of these rounds: {document.fallback_budget}")
    for name, value in document.quality.items():
        print(f"  {name}: {value:.4g}")
    print(f"wrote {arguments.out}")
    plot = arguments.plot or arguments.out.with_suffix(".png")
    try:
        plot_cost_fit(plot, timed, cost_fit)
        print(f"wrote {plot}")
    except ValueError as error:
        print(error, file=sys.stderr)
    return 0


def parse_grid(text: str) -> list[int]:
    """Budgets of ``LOW:HIGH:STEP`` (both ends included) or of numbers parted by commas.

    Raises:
        ValueError: neither, or budgets outside what a tree may have.
    """
    from graft_sglang.contracts import MAX_BUDGET

    try:
        if ":" in text:
            low, high, step = (int(part) for part in text.split(":"))
            grid = list(range(low, high + 1, step))
        else:
            grid = sorted({int(part) for part in text.split(",")})
    except ValueError:
        grid = []
    if not grid or grid[0] < 0 or not 0 < grid[-1] <= MAX_BUDGET:
        raise ValueError(
            f"--grid must be LOW:HIGH:STEP or numbers parted by commas, from 0 to {MAX_BUDGET}, "
            f"not '{text}'."
        )
    return grid


def build_scorer(arguments: argparse.Namespace, depth: int, candidates: int) -> EdgeScorer:
    """The edge scorer of ``add_scorer_arguments``, on the CPU.

    Raises:
        ValueError: an unknown name, or a scorer that can't be built.
    """
    import torch

    from graft_sglang.contracts import MAX_BUDGET, ComponentContext
    from graft_sglang.registry import edge_scorers
    from graft_sglang.target_files import read_input_embedding

    folder = arguments.target
    options = {
        "tdes_path": str(arguments.tdes_path) if arguments.tdes_path else None,
        "beta": arguments.beta,
    }
    embedding = None if folder is None else read_input_embedding(folder)
    context = ComponentContext(
        depth=depth,
        num_candidates=candidates,
        max_budget=MAX_BUDGET,
        vocab_size=0 if embedding is None else len(embedding),
        device=torch.device("cpu"),
        options=options,
        target_embedding=None if embedding is None else lambda: embedding,
    )
    return edge_scorers.get(arguments.edge_scorer).from_context(context)


def _fit(
    arguments: argparse.Namespace,
) -> tuple[SabaDocument, TimedRounds, CostFit]:
    from functools import partial

    import numpy as np
    from tqdm import tqdm

    from graft_sglang.budgeters.saba.cost import TimedRounds
    from graft_sglang.budgeters.saba.pipeline import fit_all, timed_rounds
    from graft_sglang.budgeters.saba.replay import replay
    from graft_sglang.hardware import describe
    from graft_sglang.traces import read_meta, read_rounds

    grid = parse_grid(arguments.grid)
    meta = read_meta(arguments.traces)
    scorer = build_scorer(arguments, meta.depth, meta.candidates)
    rounds = read_rounds(arguments.traces)
    replayed = replay(rounds, scorer, grid, partial(tqdm, desc="replay", unit="round"))
    folders = tqdm(arguments.cost_traces or [], desc="cost traces", unit="folder")
    timed = [timed_rounds(read_rounds(folder)) for folder in folders] or [timed_rounds(rounds)]
    columns = TimedRounds(*(np.concatenate(column) for column in zip(*timed, strict=True)))
    document, cost_fit = fit_all(
        replayed,
        columns,
        bins=arguments.bins,
        target=arguments.target.name if arguments.target else "",
        target_fingerprint=meta.target_fingerprint,
        drafter=meta.drafter,
        edge_scorer=arguments.edge_scorer,
        hardware=arguments.hardware or describe(),
    )
    return document, columns, cost_fit
