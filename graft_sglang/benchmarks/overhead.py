"""Host time of a round between the drafter's candidates and the target's forward.

``graft-sglang bench overhead`` runs what the worker runs (score, state, budget, build, verify
arrays) on random rounds of the paper's size, without the top-k, beside the plain-Python heap,
masks and links on the same edge scores, by turns in one run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from graft_sglang.benchmarks import reference
from graft_sglang.benchmarks.environment import environment
from graft_sglang.benchmarks.fitted import example_document
from graft_sglang.benchmarks.host_path import PREFIX, HostPath
from graft_sglang.benchmarks.tdes_speed import CANDIDATES, DEPTH, random_rounds, random_tables
from graft_sglang.budgeters.fixed import FixedBudget
from graft_sglang.budgeters.saba.policy import SabaPolicy
from graft_sglang.components import Components
from graft_sglang.contracts import BudgetPolicy, DecodingState, DraftCandidates
from graft_sglang.scorers.ddtree import DDTreeScorer
from graft_sglang.scorers.tdes.scorer import TDESScorer
from graft_sglang.tree.best_first import BestFirstTreeBuilder

VOCABULARY = 49_152
BATCH_SIZES = (1, 4, 16, 32)
BUDGETS = (16, 64, 128, 256)
METHODS = ("ddtree + fixed", "tdes + saba")
PAPER_MS = 0.5
"""The paper's whole overhead of a round at batch 1, on a host with an A100."""
REFERENCE_REPEATS = 20


@dataclass(frozen=True)
class Row:
    """One line of the table; milliseconds a batch."""

    method: str
    batch: int
    budget: int
    host_ms_p50: float
    host_ms_p99: float
    score_ms_p50: float
    budget_ms_p50: float
    build_ms_p50: float
    arrays_ms_p50: float
    reference_ms_p50: float
    """Plain-Python heap, masks and links of the same trees; scoring and policy not counted."""
    speedup: float


class PinnedPolicy(BudgetPolicy):
    """Asks another policy, then returns one budget for all: the tree's size is the row's."""

    def __init__(self, asked: BudgetPolicy, budget: int) -> None:
        self._asked, self._budget = asked, budget

    @classmethod
    def from_context(cls, context: object) -> PinnedPolicy:
        raise ValueError("this policy is for benchmarks")

    @property
    def max_budget(self) -> int:
        return self._budget

    def select(self, state: DecodingState) -> torch.Tensor:
        return torch.full_like(self._asked.select(state), self._budget)


def components(method: str, budget: int) -> Components:
    """The parts that a server of this method has."""
    if method == "tdes + saba":
        scorer = TDESScorer(random_tables(VOCABULARY), 0.2)
        policy = PinnedPolicy(SabaPolicy(example_document(DEPTH)), budget)
        return Components(scorer, policy, BestFirstTreeBuilder(recycle=True))
    return Components(DDTreeScorer(), FixedBudget(budget), BestFirstTreeBuilder(recycle=True))


def measure_row(method: str, batch_size: int, budget: int, repeats: int) -> Row:
    """Time the host's path and the reference by turns."""
    parts = components(method, budget)
    path = HostPath(parts, batch_size, budget, DEPTH)
    rounds = cycle(random_rounds(VOCABULARY, batch_size, "zipf"))
    times, stages, reference_times = [], [], []
    with torch.inference_mode():
        for _ in range(20):
            path.once(next(rounds))
        for _ in range(REFERENCE_REPEATS):
            reference_times.append(_reference_ms(parts, next(rounds), budget))
            for _ in range(max(1, repeats // REFERENCE_REPEATS)):
                passed = path.once(next(rounds))
                times.append(1e3 * passed.total_s)
                # score, budget, build: see STAGES.
                stages.append((*(1e3 * passed.clock.seconds[2:5]), 1e3 * passed.arrays_s))
    p50, p99 = np.percentile(times, (50, 99))
    slow = float(np.median(reference_times))
    score, select, build, expand = (float(ms) for ms in np.median(np.array(stages), axis=0))
    return Row(
        method,
        batch_size,
        budget,
        host_ms_p50=float(p50),
        host_ms_p99=float(p99),
        score_ms_p50=score,
        budget_ms_p50=select,
        build_ms_p50=build,
        arrays_ms_p50=expand,
        reference_ms_p50=slow,
        speedup=slow / float(p50),
    )


def _reference_ms(parts: Components, candidates: DraftCandidates, budget: int) -> float:
    token_ids = candidates.token_ids.tolist()
    values = parts.scorer.score(candidates).values.tolist()
    started = perf_counter()
    for ids, edges in zip(token_ids, values, strict=True):
        tree = reference.best_first(0, ids, edges, budget, DEPTH)
        reference.visibility(tree)
        reference.links(tree)
    return 1e3 * (perf_counter() - started)


def measure(repeats: int) -> Iterator[Row]:
    """All rows of the table."""
    for method in METHODS:
        for batch_size in BATCH_SIZES:
            for budget in BUDGETS:
                yield measure_row(method, batch_size, budget, max(40, repeats // batch_size))


def as_table(rows: list[Row]) -> str:
    """Markdown."""
    lines = [
        "| method | batch | B | p50 ms | p99 ms | score | budget | build | arrays "
        "| Python reference ms | times faster |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        stages = (row.score_ms_p50, row.budget_ms_p50, row.build_ms_p50, row.arrays_ms_p50)
        lines.append(
            f"| {row.method} | {row.batch} | {row.budget} | {row.host_ms_p50:.3f} "
            f"| {row.host_ms_p99:.3f} | {' | '.join(f'{ms:.3f}' for ms in stages)} "
            f"| {row.reference_ms_p50:.2f} | {row.speedup:.0f} |"
        )
    return "\n".join(lines)


def report(repeats: int, json_file: Path | None = None) -> None:
    """Measure on one thread, print a table, and write JSON where asked."""
    torch.set_num_threads(1)
    where = environment()
    rows = list(measure(repeats))
    sys.stdout.write(
        f"Candidates to verify arrays, D={DEPTH}, K={CANDIDATES}, prefix {PREFIX}, "
        f"V={VOCABULARY}, one thread, times a batch; the paper reports < {PAPER_MS} ms at batch 1\n"
    )
    sys.stdout.writelines(f"{name}: {value}\n" for name, value in where.items())
    sys.stdout.write(as_table(rows) + "\n")
    if json_file:
        document = {
            "environment": where,
            "paper_ms": PAPER_MS,
            "rows": [asdict(row) for row in rows],
        }
        json_file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
