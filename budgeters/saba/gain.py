"""Draft gain: the decoding state of Eq. 15, G(B) of Eq. 16, and a table of a(B) by state.

Shapes use ``n`` rounds (or requests of a batch) and ``m`` budgets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from graft_sglang.contracts import DecodingState
from graft_sglang.tree.jit import jit

FLOOR = 1e-3
"""Smallest phi . s, in nodes: below it G would jump or turn negative."""


def state_vectors(state: DecodingState, mean_history: float) -> np.ndarray:
    """s_t = [conf, degen, hist] of each request, float64 [bs, 3] (Eq. 15).

    Without history, hist_t is ``mean_history``. A row that is not finite turns NaN as a whole.
    """
    rows = []
    for conf, degen, hist in zip(
        state.confidence.tolist(), state.degeneration.tolist(), state.history.tolist(), strict=True
    ):
        filled = mean_history if math.isnan(hist) else hist
        finite = math.isfinite(conf + degen + filled)
        rows.append((conf, degen, filled) if finite else (math.nan,) * 3)
    return np.array(rows, np.float64)


def saturation_gain(budgets: np.ndarray, states: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """G(B) = 1 - exp(-B / (phi . s)) (Eq. 16), float64 [n, m].

    Args:
        budgets: [m], nodes.
        states: float64 [n, 3].
        phi: float64 [3]; phi . s is floored at ``FLOOR``.
    """
    gains = np.empty((len(states), len(budgets)))
    _saturate(budgets, states, phi, gains)
    return gains


@dataclass(frozen=True, slots=True)
class GainTable:
    """Measured a(B) - 1 by state: one curve at each of a few values of a scalar of the state.

    The scalar is z = weights . [1, conf, degen, hist], a linear prediction of a(Bmax); between
    two centres the curves are interpolated, beyond the outer ones they are kept.
    """

    weights: np.ndarray
    """float64 [4]"""
    centres: np.ndarray
    """float64 [bins], rising."""
    budgets: np.ndarray
    """float64 [m], rising."""
    values: np.ndarray
    """float64 [bins, m]: mean accepted draft tokens a(B) - 1, not falling along a row."""

    def gain(self, states: np.ndarray) -> np.ndarray:
        """Expected a(B) - 1, float64 [n, m]; NaN where the state is."""
        return self.place_and_gain(states)[1]

    def place_and_gain(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Nearest centre of each state, int64 [n], and ``gain``, float64 [n, m]."""
        places = np.empty(len(states), np.int64)
        gains = np.empty((len(states), self.values.shape[1]))
        _read_table(states, self.weights, self.centres, self.values, places, gains)
        return places, gains

    def on_grid(self, budgets: np.ndarray) -> GainTable:
        """The same table over other budgets, linear in B between its own; 0 at B = 0."""
        return GainTable(
            self.weights, self.centres, budgets, over_budgets(self.budgets, self.values, budgets)
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    """a(B) - 1 as a linear function of the tree's own expectation and the state, for each B.

    Features: [1, e(B), hist, conf], e(B) the summed path probabilities of the first B nodes.
    """

    budgets: np.ndarray
    """float64 [m], rising."""
    coefficients: np.ndarray
    """float64 [m, 4]"""

    def gain(self, expected: np.ndarray, states: np.ndarray) -> np.ndarray:
        """Calibrated a(B) - 1, float64 [n, m]: not negative, not falling in B.

        Args:
            expected: float64 [n, m], e(B).
            states: float64 [n, 3].
        """
        own = self.coefficients
        raw = own[:, 0] + own[:, 1] * expected
        raw = raw + states[:, 2:3] * own[:, 2] + states[:, :1] * own[:, 3]
        return np.maximum.accumulate(np.maximum(raw, 0.0), axis=1)

    def on_grid(self, budgets: np.ndarray) -> Calibration:
        """The same calibration over other budgets; nothing is expected of B = 0."""
        return Calibration(
            budgets, over_budgets(self.budgets, self.coefficients.T, budgets).T.copy()
        )


def over_budgets(known: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Rows of ``values`` [n, m] over ``wanted`` budgets: linear between, 0 at B = 0, level beyond.

    Level beyond the largest known budget: no gain is claimed that was not measured.
    """
    if known[0] > 0:
        known = np.concatenate(([0.0], known))
        values = np.pad(values, ((0, 0), (1, 0)))
    return np.stack([np.interp(wanted, known, row) for row in values])


@jit
def _saturate(budgets: np.ndarray, states: np.ndarray, phi: np.ndarray, gains: np.ndarray) -> None:
    for row in range(len(states)):
        scale = 0.0
        for i in range(3):
            scale += phi[i] * states[row, i]
        if scale < FLOOR:
            scale = FLOOR
        for j in range(len(budgets)):
            gains[row, j] = -math.expm1(-budgets[j] / scale)


@jit
def _read_table(
    states: np.ndarray,
    weights: np.ndarray,
    centres: np.ndarray,
    values: np.ndarray,
    places: np.ndarray,
    gains: np.ndarray,
) -> None:
    """Fill ``places`` [n] and ``gains`` [n, m]; a tenth of the time of the same in numpy."""
    for row in range(len(states)):
        scalar = weights[0]
        for i in range(3):
            scalar += weights[i + 1] * states[row, i]
        if not np.isfinite(scalar):
            places[row] = 0
            gains[row] = np.nan
            continue
        above = 0
        while above < len(centres) and centres[above] <= scalar:
            above += 1
        low = max(above - 1, 0)
        high = min(above, len(centres) - 1)
        share = 0.0
        if high > low:
            share = (scalar - centres[low]) / (centres[high] - centres[low])
        places[row] = high if share > 0.5 else low
        for j in range(values.shape[1]):
            gains[row, j] = (1 - share) * values[low, j] + share * values[high, j]
