"""A SABA document of plausible size, for timing policies where none was fitted."""

from __future__ import annotations

import numpy as np

from graft_sglang.budgeters.saba.cost import AffineCost, CostTable
from graft_sglang.budgeters.saba.document import SabaDocument
from graft_sglang.budgeters.saba.gain import Calibration, GainTable

PAPER_GRID = tuple(range(32, 513, 16))


def example_document(depth: int) -> SabaDocument:
    """The paper's grid with made-up curves: 30 ms a round plus 0.1 ms a node."""
    budgets = np.array(PAPER_GRID, np.float64)
    cost = AffineCost(0.030, 0.0001, 1e-6)
    prefixes = np.array([100.0, 1000.0])
    seconds = np.stack([cost.over(budgets).seconds(prefix) for prefix in prefixes])
    return SabaDocument(
        target="none",
        target_fingerprint="",
        drafter="none",
        edge_scorer="tdes",
        hardware="none",
        date="2026-01-01",
        depth=depth,
        grid=PAPER_GRID,
        fallback_budget=64,
        state_mean=(0.5, 0.3, 3.0),
        phi=(20.0, 10.0, 5.0),
        cost=cost,
        cost_table=CostTable(cost, budgets, prefixes, seconds),
        gain_table=GainTable(
            np.array([0.0, 4.0, 0.0, 0.5]),
            np.array([1.0, 2.0, 4.0]),
            budgets,
            np.log1p(budgets)[None] * np.array([[0.2], [0.5], [1.0]]),
        ),
        calibration=Calibration(budgets, np.tile([0.0, 1.0, 0.0, 0.0], (len(budgets), 1))),
        quality={},
    )
