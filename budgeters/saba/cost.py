"""Cost of a round in seconds: Eq. 17's line, and a table of measured medians.

Batches: ``n`` requests padded to the widest tree verify ``n (W + 1)`` tokens, as many as one
request with ``n (W + 1) - 1`` nodes; that is the budget at which a batch's cost is read, with the
mean prefix. At batch 1 it is the tree's own budget.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

OUTLIER_MADS = 5.0
"""Rounds whose residual exceeds that many (normal-consistent) median absolute deviations are
left out of the fit, and counted."""
SHRINKAGE = 4.0
"""A cell with that many rounds lies half way between the fitted line and its own median."""


class TimedRounds(NamedTuple):
    """Measured rounds of one request each."""

    budgets: np.ndarray
    """float64 [n], nodes verified, the root not counted."""
    prefix_lens: np.ndarray
    """float64 [n], tokens."""
    seconds: np.ndarray
    """float64 [n]"""

    def subset(self, rows: np.ndarray) -> TimedRounds:
        """The rounds of ``rows`` (bool [n])."""
        return TimedRounds(self.budgets[rows], self.prefix_lens[rows], self.seconds[rows])


class CostModel(Protocol):
    """Seconds of a round."""

    def over(self, budgets: np.ndarray) -> CostCurve:
        """The cost at each of ``budgets`` (float64 [m]) for any prefix length."""


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Cost over a fixed set of budgets: linear in the prefix between knots, and beyond them."""

    knots: tuple[float, ...]
    """Prefix lengths, rising."""
    values: np.ndarray
    """float64 [len(knots), m], seconds."""
    slopes: np.ndarray
    """float64 [m], seconds a prefix token beyond the outer knots."""

    def seconds(self, prefix_len: float) -> np.ndarray:
        """float64 [m]"""
        knots = self.knots
        after = bisect_right(knots, prefix_len)
        if after == 0 or after == len(knots):
            end = max(after - 1, 0)
            return self.values[end] + (prefix_len - knots[end]) * self.slopes
        share = (prefix_len - knots[after - 1]) / (knots[after] - knots[after - 1])
        return (1 - share) * self.values[after - 1] + share * self.values[after]


def batch_curve(model: CostModel, widths: np.ndarray, batch_size: int) -> CostCurve:
    """Cost of a batch whose trees are padded to ``widths`` (float64 [m]) draft nodes."""
    return model.over(batch_size * (widths + 1.0) - 1.0)


@dataclass(frozen=True, slots=True)
class AffineCost:
    """C(B) = c0 + c1 B + c2 B prefix (Eq. 17)."""

    c0: float
    c1: float
    c2: float

    def over(self, budgets: np.ndarray) -> CostCurve:
        return CostCurve((0.0,), (self.c0 + self.c1 * budgets)[None], self.c2 * budgets)


@dataclass(frozen=True, slots=True)
class CostTable:
    """Measured medians over budgets and prefix lengths; a staircase stays a staircase.

    Linear between its points; beyond them, the line's difference is added to the nearest point.
    """

    line: AffineCost
    budgets: np.ndarray
    """float64 [m], rising."""
    prefix_lens: np.ndarray
    """float64 [p], rising."""
    values: np.ndarray
    """float64 [p, m], seconds."""

    def over(self, budgets: np.ndarray) -> CostCurve:
        inside = np.stack([np.interp(budgets, self.budgets, row) for row in self.values])
        beyond = budgets - np.clip(budgets, self.budgets[0], self.budgets[-1])
        slopes = self.line.c1 + self.line.c2 * self.prefix_lens[:, None]
        return CostCurve(
            tuple(self.prefix_lens.tolist()), inside + slopes * beyond, self.line.c2 * budgets
        )


@dataclass(frozen=True, slots=True)
class CostFit:
    """Eq. 17's line and how well it fits the measured rounds."""

    cost: AffineCost
    r2: float
    """Of the rounds that are not outliers."""
    residuals: np.ndarray
    """float64 [n], seconds, measured - fitted, outliers included."""
    outliers: np.ndarray
    """bool [n]"""


def fit_affine(timed: TimedRounds) -> CostFit:
    """Least squares of Eq. 17 on measured rounds, outliers left out.

    Raises:
        ValueError: times that are not positive numbers, or fewer than two budgets.
    """
    budgets, prefix_lens, seconds = timed
    if not len(seconds) or not (np.isfinite(seconds) & (seconds > 0)).all():
        raise ValueError("The cost fit needs rounds whose times are positive numbers.")
    if len(np.unique(budgets)) < 2:
        raise ValueError(
            "The cost can't be fitted: every timed round had the same budget; record with "
            "varied budgets."
        )
    design = np.stack((np.ones(len(seconds)), budgets, budgets * prefix_lens), axis=1)
    scale = np.abs(design).max(axis=0)
    scale[scale == 0] = 1.0
    inside = np.ones(len(seconds), bool)
    residuals = np.zeros(len(seconds))
    solution = np.zeros(3)
    for _ in range(5):
        solution = np.linalg.lstsq(design[inside] / scale, seconds[inside], rcond=1e-10)[0] / scale
        residuals = seconds - design @ solution
        centre = np.median(residuals)
        spread = 1.4826 * np.median(np.abs(residuals - centre))
        limit = max(OUTLIER_MADS * spread, 1e-9 * float(np.median(seconds)))
        kept = np.abs(residuals - centre) <= limit
        if (kept == inside).all() or len(np.unique(budgets[kept])) < 2:
            break
        inside = kept
    return CostFit(
        AffineCost(*(float(c) for c in solution)),
        r_squared(seconds[inside], residuals[inside]),
        residuals,
        ~inside,
    )


def build_table(
    timed: TimedRounds, line: AffineCost, prefix_bins: int = 4
) -> tuple[CostTable, np.ndarray]:
    """Medians of measured rounds by budget and prefix length; also the counts, [p, m].

    A cell is the line plus its median residual, shrunk by the cell's count, so that an empty
    cell is the line and a few noisy rounds can't make a budget look cheap.
    """
    budgets, prefix_lens, seconds = timed
    edges = np.unique(np.quantile(prefix_lens, np.linspace(0, 1, prefix_bins + 1)))
    bins = np.searchsorted(edges[1:-1], prefix_lens, side="right")
    known = np.unique(budgets)
    used = np.unique(bins)
    centres = np.array([np.median(prefix_lens[bins == b]) for b in used], np.float64)
    values = np.empty((len(used), len(known)))
    counts = np.zeros(values.shape, np.int64)
    for i, centre in enumerate(centres):
        values[i] = line.over(known).seconds(float(centre))
        for j, budget in enumerate(known):
            chosen = (bins == used[i]) & (budgets == budget)
            counts[i, j] = chosen.sum()
            if counts[i, j]:
                slopes = line.c1 + line.c2 * prefix_lens[chosen]
                residual = float(np.median(seconds[chosen] - line.c0 - slopes * budget))
                values[i, j] += residual * counts[i, j] / (counts[i, j] + SHRINKAGE)
    return CostTable(line, known, centres, values), counts


def r_squared(values: np.ndarray, residuals: np.ndarray) -> float:
    """Share of the variance explained; 1 for constant values that are met exactly."""
    total = float(((values - values.mean()) ** 2).sum())
    rest = float((residuals**2).sum())
    if total == 0:
        return 1.0 if rest < 1e-12 else 0.0
    return 1.0 - rest / total
