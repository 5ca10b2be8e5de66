"""One budget decision for the running batch.

A batch's verify is padded to its widest tree, so its cost depends on the widest budget only.
Maximised: the summed value of the requests (their expected tokens, or the paper's G) over that
cost. At batch 1 this is Eq. 14.
"""

from __future__ import annotations

import numpy as np


def decide(values: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, float]:
    """Budgets that maximise (sum of values) / (cost of the widest); nothing is assumed of shapes.

    For each width j the best is every request's best budget up to j, with the request that loses
    least held at j. Ties go to the smaller budgets.

    Args:
        values: float64 [bs, m], value of each request at each budget, bs > 0.
        costs: float64 [m], positive: the batch's cost when its widest tree has that budget.

    Returns:
        int64 [bs], indices into the m budgets, and the utility reached: NaN if any value or cost
        is NaN, and the indices then mean nothing.
    """
    if len(values) == 1:
        ratios = values[0] / costs
        place = ratios.argmax()
        return np.array([place]), float(ratios[place])
    best = np.maximum.accumulate(values, axis=1)
    losses = best - values
    ratios = (best.sum(axis=0) - losses.min(axis=0)) / costs
    width = int(ratios.argmax())
    chosen = np.argmax(values[:, : width + 1], axis=1)
    if chosen.max() < width:
        chosen[np.argmin(losses[:, width])] = width
    return chosen, float(ratios[width])
