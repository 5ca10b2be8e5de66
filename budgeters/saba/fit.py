"""Fitting the gain from nested same-prefix replay: phi of Eq. 16, tables, a calibration.

Shapes use ``n`` rounds and ``m`` budgets; ``committed`` [n, m] holds a(B) of each round, which
one large tree gives for every B.
"""

from __future__ import annotations

import numpy as np

from graft_sglang.budgeters.saba.cost import r_squared
from graft_sglang.budgeters.saba.gain import FLOOR, Calibration, GainTable, saturation_gain

STARTS = (2.0, 8.0, 32.0, 128.0, 512.0)
"""phi . s, in nodes, from which the fit of phi starts; the best end is kept."""
ITERATIONS = 200
RIDGE = 1.0
"""Ridge of the calibration, in rounds: keeps features that hardly vary from large weights."""


def gain_fractions(committed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(a(B) - a(0)) / (a(Bmax) - a(0)) of the rounds that gain at all; a(0) = 1.

    Returns:
        float64 [rounds used, m] and bool [n], the rounds used.
    """
    gains = committed - 1.0
    used = gains[:, -1] > 0
    return gains[used] / gains[used, -1:], used


def fit_phi(states: np.ndarray, budgets: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """phi by least squares of G(B) (Eq. 16) against ``fractions`` [n, m]; Levenberg-Marquardt.

    Args:
        states: float64 [n, 3].
        budgets: float64 [m].

    Raises:
        ValueError: no rounds, a value that is not finite, or phi . s <= 0 on the mean state.
    """
    if not len(states) or not np.isfinite(states).all() or not np.isfinite(fractions).all():
        raise ValueError("phi can't be fitted: it needs rounds whose states and gains are finite.")
    best, best_error = np.zeros(3), np.inf
    for start in STARTS:
        first = np.linalg.lstsq(states, np.full(len(states), start), rcond=None)[0]
        phi, error = _descend(first, states, budgets, fractions)
        if error < best_error:
            best, best_error = phi, error
    if states.mean(axis=0) @ best <= 0:
        raise ValueError("phi can't be fitted: phi . s is not positive on the mean state.")
    return best


def _descend(
    phi: np.ndarray, states: np.ndarray, budgets: np.ndarray, fractions: np.ndarray
) -> tuple[np.ndarray, float]:
    """phi and squared error at the end of one descent."""
    damping = 1e-3
    residuals = saturation_gain(budgets, states, phi) - fractions
    error = float((residuals**2).sum())
    for _ in range(ITERATIONS):
        scale = states @ phi
        alive = (scale > FLOOR)[:, None]
        scale = np.maximum(scale, FLOOR)[:, None]
        slopes = np.where(alive, -np.exp(-budgets / scale) * budgets / scale**2, 0.0)
        normal = (states * (slopes**2).sum(axis=1)[:, None]).T @ states
        gradient = states.T @ (slopes * residuals).sum(axis=1)
        diagonal = np.diag(normal) + 1e-300
        step = np.linalg.lstsq(normal + damping * np.diag(diagonal), -gradient, rcond=None)[0]
        trial = phi + step
        trial_residuals = saturation_gain(budgets, states, trial) - fractions
        trial_error = float((trial_residuals**2).sum())
        if trial_error < error:
            settled = error - trial_error <= 1e-12 * error
            phi, residuals, error = trial, trial_residuals, trial_error
            damping = max(damping / 5, 1e-12)
            if settled:
                break
        else:
            damping *= 4
            if damping > 1e12:
                break
    return phi, error


def fit_table(
    states: np.ndarray, budgets: np.ndarray, committed: np.ndarray, bins: int
) -> GainTable:
    """Mean a(B) - 1 in ``bins`` groups of equal size, by a linear prediction of a(Bmax)."""
    gains = committed - 1.0
    design = np.concatenate((np.ones((len(states), 1)), states), axis=1)
    weights = np.linalg.lstsq(design, gains[:, -1], rcond=None)[0]
    scalar = design @ weights
    groups = np.array_split(np.argsort(scalar, kind="stable"), min(bins, len(states)))
    centres = np.array([scalar[group].mean() for group in groups])
    values = np.stack([gains[group].mean(axis=0) for group in groups])
    distinct = np.concatenate(([True], np.diff(centres) > 1e-9))
    return GainTable(weights, centres[distinct], budgets, values[distinct])


def fit_calibration(
    expected: np.ndarray, states: np.ndarray, budgets: np.ndarray, committed: np.ndarray
) -> Calibration:
    """Ridge regression of a(B) - 1 on [1, e(B), hist, conf], one for each budget."""
    gains = committed - 1.0
    coefficients = np.empty((len(budgets), 4))
    for j in range(len(budgets)):
        features = np.stack((expected[:, j], states[:, 2], states[:, 0]), axis=1)
        means, mean_gain = features.mean(axis=0), gains[:, j].mean()
        centred = features - means
        penalty = RIDGE * np.diag(np.maximum(centred.var(axis=0), 1e-9))
        weights = np.linalg.solve(
            centred.T @ centred + penalty, centred.T @ (gains[:, j] - mean_gain)
        )
        coefficients[j] = (mean_gain - means @ weights, *weights)
    return Calibration(budgets, coefficients)


def fit_quality(predicted: np.ndarray, measured: np.ndarray) -> float:
    """R2 over all rounds and budgets."""
    return r_squared(measured.ravel(), (measured - predicted).ravel())
