"""Time that ``--graft-trace-dir`` adds to a round.

The worker's own recorder and writer record finished random rounds (D=15, K=32); the round's clock
has stopped before, so no stage time holds this cost.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from time import perf_counter, sleep
from types import SimpleNamespace

import numpy as np
import torch

from graft_sglang.benchmarks.environment import environment
from graft_sglang.benchmarks.tdes_speed import CANDIDATES, DEPTH, random_rounds
from graft_sglang.budgeters.fixed import FixedBudget
from graft_sglang.components import Components
from graft_sglang.engine.recorder import RoundRecorder
from graft_sglang.engine.round import Round
from graft_sglang.planning import plan_round
from graft_sglang.scorers.ddtree import DDTreeScorer
from graft_sglang.stages import StageClock
from graft_sglang.traces import TraceMeta, TraceWriter
from graft_sglang.tree.acceptance import accept_paths
from graft_sglang.tree.best_first import BestFirstTreeBuilder

VOCABULARY = 49_152
BUDGET = 64
BATCH_SIZES = (1, 8)
PAUSE_S = 0.003
"""Between rounds, as a served round's forwards leave the writer's thread time to work."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    batch: int
    budget: int
    record_ms_p50: float
    record_ms_p99: float


def finished_rounds(batch_size: int) -> list[Round]:
    """Random rounds up to their commit; at most two thirds of the target's tokens are drafted."""
    parts = Components(DDTreeScorer(), FixedBudget(BUDGET), BestFirstTreeBuilder())
    generator = torch.Generator().manual_seed(0)
    batch = SimpleNamespace(
        reqs=[SimpleNamespace(rid=f"bench/{row}") for row in range(batch_size)],
        sampling_info=SimpleNamespace(is_all_greedy=True),
    )
    lengths = torch.full((batch_size,), 512)
    history = torch.full((batch_size,), 3.0)
    found = []
    for candidates in random_rounds(VOCABULARY, batch_size, "zipf")[:16]:
        current = Round(batch, lengths)
        current.candidates = candidates
        current.plan = plan_round(parts, candidates, history, lengths, None, BUDGET, StageClock())
        tree = current.tree
        current.target_tokens = tree.token_ids.roll(-1, dims=1)
        current.logits = torch.randn(tree.token_ids.numel(), VOCABULARY, generator=generator)
        current.accepted = accept_paths(tree, current.target_tokens)
        found.append(current)
    return found


def measure(repeats: int) -> Iterator[Row]:
    """A row for each batch size."""
    for batch_size in BATCH_SIZES:
        rounds = cycle(finished_rounds(batch_size))
        with tempfile.TemporaryDirectory() as folder:
            meta = TraceMeta("benchmark", DEPTH, CANDIDATES, "none", "2026-01-01")
            writer = TraceWriter(folder, meta)
            recorder = RoundRecorder(writer.put)
            times = []
            for _ in range(repeats):
                current = next(rounds)
                started = perf_counter()
                recorder.record(current)
                times.append(1e3 * (perf_counter() - started))
                sleep(PAUSE_S)
            writer.close()
        p50, p99 = np.percentile(times, (50, 99))
        yield Row(batch_size, BUDGET, float(p50), float(p99))


def report(repeats: int, json_file: Path | None = None) -> None:
    """Measure on one thread, print a table, and write JSON where asked."""
    torch.set_num_threads(1)
    where = environment()
    rows = list(measure(repeats))
    sys.stdout.writelines(f"{name}: {value}\n" for name, value in where.items())
    sys.stdout.write(
        f"D={DEPTH}, K={CANDIDATES}, V={VOCABULARY}; {repeats} rounds\n"
        "| batch | B | recording p50 ms | p99 ms |\n"
        "|---:|---:|---:|---:|\n"
    )
    for row in rows:
        sys.stdout.write(
            f"| {row.batch} | {row.budget} | {row.record_ms_p50:.3f} | {row.record_ms_p99:.3f} |\n"
        )
    if json_file:
        document = {"environment": where, "rows": [asdict(row) for row in rows]}
        json_file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
