"""Host time of a round's tree: build with ancestor masks and links, and the mask's expansion.

``graft-sglang bench tree`` times the Numba builder beside the plain-Python reference in the same
run, by turns, on random candidates of depth 15 with 32 a depth.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from graft_sglang.benchmarks import reference
from graft_sglang.benchmarks.environment import environment
from graft_sglang.contracts import DraftCandidates, EdgeScores
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.masks.numba_backend import full_mask

DEPTH = 15
CANDIDATES = 32
PREFIX = 512
BUDGETS = (32, 64, 128, 256, 512, 1024)
REFERENCE_REPEATS = 40


@dataclass(frozen=True)
class Row:
    """One line of the table; milliseconds a batch."""

    step: str
    budget: int
    parents: int
    batch_size: int
    median_ms: float
    p99_ms: float
    reference_median_ms: float | None = None
    speedup: float | None = None


def random_case(batch_size: int, parents: int, seed: int) -> tuple[DraftCandidates, EdgeScores]:
    """Peaked random marginals; with ``parents`` = K each parent changes its children's scores."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(batch_size, DEPTH, 4096, generator=generator)
    log_probs, token_ids = torch.log_softmax(logits, dim=-1).topk(CANDIDATES)
    values = log_probs[:, :, None, :]
    if parents > 1:
        values = values + 0.5 * torch.randn(
            batch_size, DEPTH, parents, CANDIDATES, generator=generator
        )
    candidates = DraftCandidates(
        root=torch.zeros(batch_size, dtype=torch.int64),
        token_ids=token_ids,
        log_probs=log_probs,
        hidden_cosines=torch.zeros(batch_size, DEPTH - 1),
    )
    return candidates, EdgeScores(values)


def timed(call: Callable[[], object], repeats: int) -> list[float]:
    """Milliseconds of each call."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        times.append(1e3 * (perf_counter() - start))
    return times


def measure_build(budget: int, parents: int, batch_size: int, repeats: int) -> Row:
    """Builder and reference on the same batch."""
    candidates, scores = random_case(batch_size, parents, seed=budget)
    budgets = torch.full((batch_size,), budget)
    builder = BestFirstTreeBuilder(recycle=True)
    token_ids, values = candidates.token_ids.tolist(), scores.values.tolist()

    def slow() -> None:
        for ids, edges in zip(token_ids, values, strict=True):
            tree = reference.best_first(0, ids, edges, budget, DEPTH)
            reference.visibility(tree)
            reference.links(tree)

    def fast() -> None:
        builder.build(candidates, scores, budgets)

    fast()
    times: list[float] = []
    reference_times: list[float] = []
    # By turns, so that whatever else the machine does slows both down.
    for _ in range(REFERENCE_REPEATS):
        reference_times += timed(slow, 1)
        times += timed(fast, repeats // REFERENCE_REPEATS)
    median, p99 = np.percentile(times, (50, 99))
    slow_median = float(np.median(reference_times))
    return Row(
        "build + masks + links",
        budget,
        parents,
        batch_size,
        float(median),
        float(p99),
        slow_median,
        slow_median / float(median),
    )


def measure_expansion(budget: int, batch_size: int, repeats: int) -> Row:
    """FULL_MASK of finished trees at a fixed prefix."""
    candidates, scores = random_case(batch_size, 1, seed=budget)
    tree = BestFirstTreeBuilder().build(candidates, scores, torch.full((batch_size,), budget))
    prefix_lens = torch.full((batch_size,), PREFIX)
    full_mask(tree, prefix_lens)
    times = timed(lambda: full_mask(tree, prefix_lens), repeats)
    median, p99 = np.percentile(times, (50, 99))
    return Row(f"FULL_MASK, prefix {PREFIX}", budget, 1, batch_size, float(median), float(p99))


def measure(repeats: int) -> list[Row]:
    """All rows of the table."""
    rows = [measure_build(b, p, 1, repeats) for p in (1, CANDIDATES) for b in BUDGETS]
    rows += [measure_build(64, p, 8, repeats) for p in (1, CANDIDATES)]
    rows += [measure_expansion(b, 1, repeats) for b in BUDGETS]
    rows.append(measure_expansion(64, 8, repeats))
    return rows


def as_table(rows: list[Row]) -> str:
    """Markdown."""
    lines = [
        "| step | B | P | batch | median ms | p99 ms | Python reference ms | times faster |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        slow = "" if row.reference_median_ms is None else f"{row.reference_median_ms:.2f}"
        ratio = "" if row.speedup is None else f"{row.speedup:.0f}"
        lines.append(
            f"| {row.step} | {row.budget} | {row.parents} | {row.batch_size} "
            f"| {row.median_ms:.4f} | {row.p99_ms:.4f} | {slow} | {ratio} |"
        )
    return "\n".join(lines)


def report(repeats: int, json_file: Path | None = None) -> None:
    """Measure, print a table, and write JSON where asked.

    Raises:
        ValueError: fewer repeats than the reference is given.
    """
    if repeats < REFERENCE_REPEATS:
        raise ValueError(f"the benchmark needs at least {REFERENCE_REPEATS} repeats")
    torch.set_num_threads(1)
    where = environment()
    rows = measure(repeats)
    sys.stdout.write(f"D={DEPTH}, K={CANDIDATES}; {repeats} repeats; times a batch\n")
    sys.stdout.writelines(f"{name}: {value}\n" for name, value in where.items())
    sys.stdout.write(as_table(rows) + "\n")
    if json_file:
        document = {"environment": where, "rows": [asdict(row) for row in rows]}
        json_file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
