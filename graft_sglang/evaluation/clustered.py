"""Means, rates and relative changes over rounds, with standard errors clustered by prompt.

Rounds of one prompt resemble each other, so their number overstates what is known. Every estimate
here is a ratio of sums; its standard error comes from the linearised residuals, summed within each
prompt: se^2 = G / (G - 1) * sum over prompts of (sum of residuals)^2, G the number of prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the share that each prompt has in its error."""

    value: float
    influence: np.ndarray
    """float64 [G]: first-order effect of each prompt on ``value``."""

    @property
    def se(self) -> float:
        """Clustered standard error; NaN with a single prompt."""
        groups = len(self.influence)
        if groups < 2:
            return float("nan")
        return float(np.sqrt(groups / (groups - 1) * np.square(self.influence).sum()))


def ratio(numerators: np.ndarray, denominators: np.ndarray, clusters: Sequence[str]) -> Estimate:
    """sum(numerators) / sum(denominators); NaN if the latter is 0.

    With ones below it is a mean; with two methods' values of the same rounds, their paired ratio.

    Args:
        numerators: [n], one a round.
        denominators: [n]
        clusters: n prompts.
    """
    _, groups = np.unique(np.asarray(clusters), return_inverse=True)
    above = np.asarray(numerators, np.float64)
    below = np.asarray(denominators, np.float64)
    total = below.sum()
    if total == 0:
        return Estimate(float("nan"), np.full(int(groups.max(initial=-1)) + 1, np.nan))
    value = above.sum() / total
    return Estimate(float(value), np.bincount(groups, above - value * below) / total)


def mean(values: np.ndarray, clusters: Sequence[str]) -> Estimate:
    """Mean over rounds."""
    return ratio(values, np.ones(len(values)), clusters)


def relative_change(new: np.ndarray, base: np.ndarray, clusters: Sequence[str]) -> Estimate:
    """mean(new) / mean(base) - 1 of the same rounds, paired."""
    paired = ratio(new, base, clusters)
    return Estimate(paired.value - 1, paired.influence)


def reduction(new: Estimate, base: Estimate) -> Estimate:
    """1 - new / base, of two estimates over the same rounds; NaN if ``base`` is 0."""
    if base.value == 0:
        return Estimate(float("nan"), np.full(len(base.influence), np.nan))
    quotient = new.value / base.value
    return Estimate(1 - quotient, (quotient * base.influence - new.influence) / base.value)
