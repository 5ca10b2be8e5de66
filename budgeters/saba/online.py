"""Keeping cost and gain honest while serving: corrections learnt from ``RoundOutcome``.

Both start at "the fit is right", use memory that does not grow with the rounds served, and stand
still when what they see is what they predict.
"""

from __future__ import annotations

import math
from statistics import median

import numpy as np

BINS_PER_OCTAVE = 4
BINS = 20 * BINS_PER_OCTAVE
"""Cells of verified tokens, a quarter of an octave each."""
LEVELS = 16
"""Cells of batch sizes, an octave each."""
WARM_UP = 16
"""First rounds at a batch size: their median sets the level, so that one slow start can't."""
LEVEL_RATE = 0.1
SHAPE_RATE = 0.03
"""Share of a surprise that a cell seen often keeps; the n-th of a new one keeps 1 / (n + 1)."""
KNOWN = 8
"""Rounds after which a cell's surprise counts in full for the level."""
LEAK = 1e-3
"""Pull of a corrected cell back to the fit, at each of its own updates."""
CLIP = 0.5
"""Largest surprise, in log seconds, that one round is believed with."""
CLIP_NEW = 2.0
"""The same for the first three rounds of a cell."""
_SPREAD = np.array([0.25, 0.5, 1.0, 0.5, 0.25])

MEMORY = 512
"""Rounds, of one cell, after which a gain observation has lost 63% of its weight."""
PRIOR_TOKENS = 30.0
"""Expected draft tokens a cell must have seen to believe its own ratio by half."""


def width_cells(widths: np.ndarray, batch_size: int) -> np.ndarray:
    """int64 [m]: cell of each width [m] (draft nodes), by the tokens that the batch verifies."""
    cells = np.rint(BINS_PER_OCTAVE * np.log2(batch_size * (widths + 1.0))).astype(np.int64)
    return np.minimum(cells, BINS - 1)


class CostCorrection:
    """A factor on the predicted cost of a round: a level for the batch size, a shape over widths.

    The log of the factor is level[batch size] + shape[verified tokens]. Each round moves both by
    the part of its surprise that the rates say. Where the width is well known the level takes
    most of it: a change of clock or load is common to all widths and must not make the widths in
    use look dearer than the others. Where it is new the shape does.
    """

    def __init__(self) -> None:
        self._level = [0.0] * LEVELS
        self._seen = [0] * LEVELS
        self._first: list[list[float]] = [[] for _ in range(LEVELS)]
        self._shape = np.zeros(BINS)
        self._visits = [0] * BINS

    def factors(self, cells: np.ndarray, batch_size: int) -> np.ndarray:
        """float64 [m]: factor on the cost of a batch whose widths have these ``width_cells``."""
        return np.exp(self._level[_octave(batch_size)] + self._shape[cells])

    def observe(self, cell: int, batch_size: int, predicted_s: float, measured_s: float) -> None:
        """Learn from one round; ``predicted_s`` is the uncorrected cost of its width's ``cell``.

        A time that is not a positive number teaches nothing.
        """
        if not (0 < measured_s < math.inf and 0 < predicted_s < math.inf):
            return
        surprise = math.log(measured_s / predicted_s)
        level = _octave(batch_size)
        visits = self._visits[cell]
        self._visits[cell] += 1
        if self._seen[level] < WARM_UP:
            self._seen[level] += 1
            first = self._first[level]
            first.append(surprise)
            self._level[level] = median(first)
            if self._seen[level] == WARM_UP:
                first.clear()
            return
        error = surprise - self._level[level] - self._shape[cell]
        limit = CLIP if visits >= 3 else CLIP_NEW
        small = min(max(error, -CLIP), CLIP)
        error = min(max(error, -limit), limit)
        self._level[level] += LEVEL_RATE * min(visits / KNOWN, 1.0) * small
        rate = max(SHAPE_RATE, 1.0 / (visits + 2))
        low = max(cell - 2, 0)
        weights = _SPREAD[low - cell + 2 : BINS - cell + 2]
        near = self._shape[low : cell + 3]
        near += weights * (rate * error - LEAK * near)


class GainCorrection:
    """A factor on the predicted accepted draft tokens, one for each cell of states.

    The factor is (seen + prior) / (predicted + prior) over the cell's last rounds, about
    ``MEMORY`` of them.
    """

    def __init__(self, cells: int) -> None:
        self._seen = np.zeros(cells)
        self._predicted = np.zeros(cells)
        self._factors = np.ones(cells)

    def factors(self, cells: np.ndarray) -> np.ndarray:
        """float64 [n]: factor for each of ``cells`` (int64 [n])."""
        return self._factors[cells]

    def observe(self, cell: int, predicted: float, accepted: float) -> None:
        """Learn from one request's round: draft tokens predicted (uncorrected) and accepted."""
        if not (math.isfinite(predicted) and math.isfinite(accepted)):
            return
        keep = 1.0 - 1.0 / MEMORY
        self._seen[cell] = keep * self._seen[cell] + accepted
        self._predicted[cell] = keep * self._predicted[cell] + predicted
        self._factors[cell] = (self._seen[cell] + PRIOR_TOKENS) / (
            self._predicted[cell] + PRIOR_TOKENS
        )


def _octave(batch_size: int) -> int:
    return min(batch_size.bit_length() - 1, LEVELS - 1)
