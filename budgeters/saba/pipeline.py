"""All fits of one file, from replayed rounds and timed rounds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from graft_sglang.budgeters.saba.cost import CostFit, TimedRounds, build_table, fit_affine
from graft_sglang.budgeters.saba.document import SabaDocument
from graft_sglang.budgeters.saba.fit import (
    fit_calibration,
    fit_phi,
    fit_quality,
    fit_table,
    gain_fractions,
)
from graft_sglang.budgeters.saba.gain import saturation_gain
from graft_sglang.budgeters.saba.replay import Replay
from graft_sglang.traces import RoundRecord

WARM_UP_ROUNDS = 16
"""First timed rounds left out: compilation and cold caches."""


def timed_rounds(rounds: Sequence[RoundRecord]) -> TimedRounds:
    """The rounds that ran alone and were timed.

    Budgets are those of the trees verified (the root not counted). Batches are left out: a
    record knows its own request's tree only.
    """
    usable = [r for r in rounds if r.batch_size == 1 and np.isfinite(r.stage_seconds).any()]
    usable = usable[WARM_UP_ROUNDS:] if len(usable) > 4 * WARM_UP_ROUNDS else usable
    budgets = np.array([len(r.tree_tokens) - 1 for r in usable], np.float64)
    prefix_lens = np.array([r.prefix_len for r in usable], np.float64)
    seconds = np.array([float(np.nansum(r.stage_seconds)) for r in usable], np.float64)
    return TimedRounds(budgets, prefix_lens, seconds)


def fit_all(
    replayed: Replay,
    timed: TimedRounds,
    *,
    bins: int,
    target: str,
    target_fingerprint: str,
    drafter: str,
    edge_scorer: str,
    hardware: str,
) -> tuple[SabaDocument, CostFit]:
    """Fit gain and cost; also returns the cost's residuals for the plot.

    Raises:
        ValueError: data that a fit can't be made of; one sentence.
    """
    budgets = replayed.budgets.astype(np.float64)
    history = replayed.states[:, 2]
    mean_history = float(np.nanmean(history)) if np.isfinite(history).any() else 1.0
    states = replayed.with_history(mean_history)
    gains = replayed.committed - 1.0
    fractions, used = gain_fractions(replayed.committed)
    phi = fit_phi(states[used], budgets, fractions)
    table = fit_table(states, budgets, replayed.committed, bins)
    calibration = fit_calibration(replayed.expected, states, budgets, replayed.committed)
    cost_fit = fit_affine(timed)
    cost_table, counts = build_table(timed.subset(~cost_fit.outliers), cost_fit.cost)
    prefix_len = float(np.mean([record.prefix_len for record in replayed.records]))
    rates = replayed.committed.mean(axis=0) / cost_table.over(budgets).seconds(prefix_len)
    document = SabaDocument(
        target=target,
        target_fingerprint=target_fingerprint,
        drafter=drafter,
        edge_scorer=edge_scorer,
        hardware=hardware,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        depth=len(replayed.records[0].token_ids),
        grid=tuple(int(b) for b in replayed.budgets),
        fallback_budget=int(replayed.budgets[np.argmax(rates)]),
        state_mean=(float(states[:, 0].mean()), float(states[:, 1].mean()), mean_history),
        phi=(float(phi[0]), float(phi[1]), float(phi[2])),
        cost=cost_fit.cost,
        cost_table=cost_table,
        gain_table=table,
        calibration=calibration,
        quality={
            "rounds_replayed": len(states),
            "rounds_without_gain": int((~used).sum()),
            "rounds_timed": len(timed.seconds),
            "cost_outliers": int(cost_fit.outliers.sum()),
            "fewest_rounds_in_a_cost_cell": int(counts.min()),
            "r2_cost": cost_fit.r2,
            "r2_gain_fraction": fit_quality(saturation_gain(budgets, states[used], phi), fractions),
            "r2_accepted_by_state_table": fit_quality(table.gain(states), gains),
            "r2_accepted_by_path_probabilities": fit_quality(replayed.expected, gains),
            "r2_accepted_by_calibrated_probabilities": fit_quality(
                calibration.gain(replayed.expected, states), gains
            ),
        },
    )
    return document, cost_fit
