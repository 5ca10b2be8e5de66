"""One budget decision for the running batch.

A batch's verify is padded to its widest tree, so its cost depends on the widest budget only.
Maximised: the summed value of the requests (their expected tokens, or the paper's G) over that
cost. At batch 1 this is Eq. 14.
"""

from __future__ import annotations

import numpy as np

from graft_sglang.tree.jit import jit


def decide(values: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, float]:
    """Budgets that maximise (sum of values) / (cost of the widest); nothing is assumed of shapes.

    For each width j the best is every request's best budget up to j, with the request that loses
    least held at j. Ties go to the smaller budgets.

    Args:
        values: float64 [bs, m], value of each request at each budget, bs > 0.
        costs: float64 [m], positive: the batch's cost when its widest tree has that budget.

    Returns:
        int64 [bs], indices into the m budgets, and the utility reached: NaN if a value is not
        finite or a cost NaN, and the indices then mean nothing.
    """
    chosen = np.empty(len(values), np.int64)
    return chosen, _decide(values, costs, chosen)


@jit
def _decide(values: np.ndarray, costs: np.ndarray, chosen: np.ndarray) -> float:
    """Fill ``chosen``; a round waits for it, and as numpy calls it takes five times as long."""
    requests, budgets = values.shape
    best = np.full(requests, -np.inf)
    width, utility = 0, -np.inf
    for j in range(budgets):
        total, least = 0.0, np.inf
        for r in range(requests):
            if not np.isfinite(values[r, j]):
                return np.nan
            best[r] = max(best[r], values[r, j])
            total += best[r]
            least = min(least, best[r] - values[r, j])
        # Of one request exactly its value, not what rounding leaves of best - (best - value).
        ratio = (values[0, j] if requests == 1 else total - least) / costs[j]
        if np.isnan(ratio):
            return np.nan
        if ratio > utility:
            width, utility = j, ratio
    loser, loss = 0, np.inf
    widest = 0
    for r in range(requests):
        place = 0
        for j in range(1, width + 1):
            if values[r, j] > values[r, place]:
                place = j
        chosen[r] = place
        widest = max(widest, place)
        own = values[r, place] - values[r, width]
        if own < loss:
            loser, loss = r, own
    if widest < width:
        chosen[loser] = width
    return utility
