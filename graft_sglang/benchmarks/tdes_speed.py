"""Time that TDES adds to a round: scoring and building a tree of 64 nodes, D=15, K=32.

Edges are scored where the tree reaches, so the two can't be timed apart; what TDES adds is the
difference to `ddtree`'s row.

The tokens are drawn from Zipf's law, like those of a text, and anew for every call, so that the
tables are not in the cache any more than in service; "uniform" tokens are the worst case.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from graft_sglang.benchmarks.environment import environment
from graft_sglang.contracts import DraftCandidates, EdgeScorer
from graft_sglang.scorers.ddtree import DDTreeScorer
from graft_sglang.scorers.tdes.model import DEFAULT_WIDTH
from graft_sglang.scorers.tdes.scorer import NormalizedTDESScorer, TDESScorer
from graft_sglang.scorers.tdes.tables import ProjectedTables
from graft_sglang.tree.best_first import BestFirstTreeBuilder

DEPTH = 15
CANDIDATES = 32
BATCH_SIZES = (1, 8)
BUDGET = 64
PAPER_MS = 0.3
"""What the paper reports for TDES, on a host with an A100."""
_DISTINCT_ROUNDS = 256

Call = Callable[[DraftCandidates], object]


@dataclass(frozen=True)
class Row:
    """One line of the table; milliseconds a batch."""

    scorer: str
    batch_size: int
    tokens: str
    p5_ms: float
    """What the call takes when nothing else is in the way."""
    median_ms: float
    p99_ms: float


def random_tables(vocabulary: int) -> ProjectedTables:
    """Tables of the served size; their values do not matter."""
    generator = torch.Generator().manual_seed(0)
    return ProjectedTables(
        torch.randn(vocabulary, 2 * DEFAULT_WIDTH, generator=generator),
        torch.randn(DEPTH, DEFAULT_WIDTH, generator=generator),
        scale=0.1,
    )


def random_rounds(vocabulary: int, batch_size: int, tokens: str) -> list[DraftCandidates]:
    """Rounds with ``zipf`` or ``uniform`` tokens."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, vocabulary + 1) if tokens == "zipf" else np.ones(vocabulary)
    share = rng.permutation(share / share.sum())
    shape = (_DISTINCT_ROUNDS, batch_size, DEPTH, CANDIDATES)
    drawn = torch.from_numpy(rng.choice(vocabulary, shape, p=share))
    log_probs = torch.from_numpy(-np.sort(rng.exponential(3, shape), axis=-1)).float()
    return [
        DraftCandidates(ids[:, 0, 0].clone(), ids, log_q, torch.zeros(batch_size, DEPTH - 1))
        for ids, log_q in zip(drawn, log_probs, strict=True)
    ]


def measure(vocabulary: int, repeats: int) -> list[Row]:
    """All rows of the table. The scorers take turns, so whatever else runs slows all of them."""
    tables = random_tables(vocabulary)
    scorers: dict[str, EdgeScorer] = {
        "ddtree": DDTreeScorer(),
        "tdes": TDESScorer(tables, 0.2),
        "tdes_normalized": NormalizedTDESScorer(tables, 1.0),
    }
    builder = BestFirstTreeBuilder(recycle=True)
    rows = []
    for batch_size in BATCH_SIZES:
        budgets = torch.full((batch_size,), BUDGET)

        def call(scorer: EdgeScorer, budgets: torch.Tensor = budgets) -> Call:
            return lambda given: builder.build(given, scorer.score(given), budgets)

        calls = {name: call(scorer) for name, scorer in scorers.items()}
        for tokens in ("zipf", "uniform"):
            rounds = cycle(random_rounds(vocabulary, batch_size, tokens))
            times = _timed(calls, rounds, repeats)
            for name, found in times.items():
                rows.append(Row(name, batch_size, tokens, *np.percentile(found, (5, 50, 99))))
    return rows


def _timed(
    calls: dict[str, Call],
    rounds: Iterator[DraftCandidates],
    repeats: int,
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    with torch.inference_mode():
        for call in calls.values():
            call(next(rounds))
        for _ in range(repeats):
            for name, call in calls.items():
                candidates = next(rounds)
                start = perf_counter()
                call(candidates)
                times[name].append(1e3 * (perf_counter() - start))
    return times


def as_table(rows: list[Row]) -> str:
    """Markdown."""
    lines = [
        "| scorer | batch | tokens | p5 ms | median ms | p99 ms |",
        "|---|---:|---|---:|---:|---:|",
    ]
    for row in rows:
        lines.append(
            f"| {row.scorer} | {row.batch_size} | {row.tokens} | {row.p5_ms:.3f} "
            f"| {row.median_ms:.3f} | {row.p99_ms:.3f} |"
        )
    return "\n".join(lines)


def report(vocabulary: int, repeats: int, json_file: Path | None = None) -> None:
    """Measure on one thread, print a table, and write JSON where asked."""
    torch.set_num_threads(1)
    where = environment()
    rows = measure(vocabulary, repeats)
    sys.stdout.write(
        f"D={DEPTH}, K={CANDIDATES}, B={BUDGET}, V={vocabulary}, m={DEFAULT_WIDTH}, one thread; "
    )
    sys.stdout.write(f"{repeats} repeats; times a batch; the paper: {PAPER_MS} ms a round\n")
    sys.stdout.writelines(f"{name}: {value}\n" for name, value in where.items())
    sys.stdout.write(as_table(rows) + "\n")
    if json_file:
        document = {
            "environment": where,
            "vocabulary": vocabulary,
            "paper_ms": PAPER_MS,
            "rows": [asdict(row) for row in rows],
        }
        json_file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
