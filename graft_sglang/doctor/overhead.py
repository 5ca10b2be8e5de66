"""What GRAFT costs a round: its host path on the recorded candidates, and the recorded stages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np
import torch

from graft_sglang.benchmarks.host_path import HostPath
from graft_sglang.benchmarks.overhead import PAPER_MS
from graft_sglang.budgeters.fixed import FixedBudget
from graft_sglang.components import Components
from graft_sglang.contracts import DraftCandidates
from graft_sglang.doctor.findings import Finding, fail, ok, warn
from graft_sglang.engine.metrics import FORWARDS
from graft_sglang.scorers.ddtree import DDTreeScorer
from graft_sglang.traces import STAGES, RoundRecord
from graft_sglang.tree.best_first import BestFirstTreeBuilder

REPEATS = 400
WARM_UP = 20
HIGH_SHARE = 0.10
"""Share of a round outside the two forwards above which the finding warns."""


def check_host_path(rounds: Sequence[RoundRecord]) -> Finding:
    """From candidates to verify arrays, for the rounds' own D, K and most frequent budget.

    One request a batch, ``ddtree`` scores, one thread; milliseconds.
    """
    check = "overhead, host path"
    budgets = [record.budget for record in rounds if record.budget > 0]
    if not budgets:
        return fail(check, "no round with a tree was recorded", "See what the budget policy chose.")
    budget = max(set(budgets), key=budgets.count)
    depth, k = rounds[0].token_ids.shape
    parts = Components(DDTreeScorer(), FixedBudget(budget), BestFirstTreeBuilder(recycle=True))
    path = HostPath(parts, batch_size=1, budget=budget, depth=depth)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            asked = islice(cycle(map(_candidates, rounds)), WARM_UP + REPEATS)
            times = [1e3 * path.once(candidates).total_s for candidates in asked][WARM_UP:]
    finally:
        torch.set_num_threads(threads)
    p50, p99 = (float(ms) for ms in np.percentile(times, (50, 99)))
    seen = (
        f"{p50:.3f} ms a round (p99 {p99:.3f}) from candidates to verify input, D={depth}, K={k}, "
        f"B={budget}; the paper's whole overhead: {PAPER_MS} ms"
    )
    data = {"host_ms_p50": p50, "host_ms_p99": p99, "depth": depth, "k": k, "budget": budget}
    if p50 > PAPER_MS:
        return warn(
            check, seen, "See what else runs on this host, or lower --graft-budget.", **data
        )
    return ok(check, seen, **data)


def check_stages(rounds: Sequence[RoundRecord]) -> Finding:
    """Share of the recorded rounds' time outside the drafter's and the target's forward.

    Medians over the rounds of single requests, on the host's clock. On a GPU the forwards run on
    while the host goes on, so a stage's time shows where the host waits.
    """
    check = "overhead, share of the round"
    alone = [record.stage_seconds for record in rounds if record.batch_size == 1]
    alone = [seconds for seconds in alone if np.isfinite(seconds).all()]
    if not alone:
        return fail(check, "no round of a single request was recorded", "See the server's log.")
    times = np.array(alone)
    forwards = [STAGES.index(stage) for stage in FORWARDS]
    share = float(np.median(1 - times[:, forwards].sum(1) / times.sum(1)))
    stages = {stage: float(ms) for stage, ms in zip(STAGES, 1e3 * np.median(times, 0), strict=True)}
    total = float(1e3 * np.median(times.sum(1)))
    words = ", ".join(f"{stage} {ms:.2f}" for stage, ms in stages.items())
    seen = (
        f"{100 * share:.1f}% of {total:.1f} ms outside draft and verify ({len(alone)} rounds; "
        f"median ms: {words})"
    )
    data = {"share": share, "round_ms_p50": total, "stage_ms_p50": stages, "rounds": len(alone)}
    if share > HIGH_SHARE:
        return warn(
            check,
            seen,
            "Of a small target that is to be expected; else see what else runs on this host.",
            **data,
        )
    return ok(check, seen, **data)


def _candidates(record: RoundRecord) -> DraftCandidates:
    """A round's candidates again; the cosines, which only ``saba`` reads, are not recorded."""
    return DraftCandidates(
        root=torch.tensor([record.root]),
        token_ids=torch.from_numpy(record.token_ids.astype(np.int64))[None],
        log_probs=torch.from_numpy(record.log_probs.copy())[None],
        hidden_cosines=torch.zeros(1, len(record.token_ids) - 1),
    )
