"""Equations 15 and 16, the gain table and the calibration, against slow transcriptions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from saba_cases import state

from graft_sglang.budgeters.saba.fit import (
    fit_calibration,
    fit_phi,
    fit_table,
    gain_fractions,
)
from graft_sglang.budgeters.saba.gain import (
    FLOOR,
    Calibration,
    GainTable,
    saturation_gain,
    state_vectors,
)


def test_the_state_is_conf_degen_hist_and_the_mean_where_there_is_no_history() -> None:
    """Eq. 15."""
    given = state([0.25, 0.5], [0.125, -0.5], [3.0, math.nan])
    assert state_vectors(given, 2.25).tolist() == [[0.25, 0.125, 3.0], [0.5, -0.5, 2.25]]


def test_the_gain_is_equation_16() -> None:
    random = np.random.default_rng(1)
    states, phi = random.uniform(0.1, 3, (20, 3)), np.array([4.0, -1.5, 7.0])
    budgets = np.array([0.0, 1, 32, 48, 512])
    gains = saturation_gain(budgets, states, phi)
    for i, s in enumerate(states):
        for j, b in enumerate(budgets):
            scale = max(phi[0] * s[0] + phi[1] * s[1] + phi[2] * s[2], FLOOR)
            assert gains[i, j] == pytest.approx(1 - math.exp(-b / scale), abs=1e-12)


def test_a_scale_that_is_not_positive_is_floored() -> None:
    gains = saturation_gain(np.array([0.0, 1.0]), np.array([[1.0, 0, 0]]), np.array([-5.0, 0, 0]))
    assert gains.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("phi", [(30.0, 20.0, 8.0), (2.0, 10.0, 0.5), (100.0, -30.0, 15.0)])
def test_the_fit_recovers_a_planted_phi_within_five_percent(phi) -> None:
    random = np.random.default_rng(2)
    states = np.stack(
        (random.uniform(0.2, 0.9, 4000), random.uniform(0, 0.8, 4000), random.uniform(1, 6, 4000)),
        axis=1,
    )
    budgets = np.arange(16.0, 1025, 16)
    fractions = saturation_gain(budgets, states, np.array(phi))
    noisy = fractions + random.normal(0, 0.05, fractions.shape)
    assert fit_phi(states, budgets, noisy) == pytest.approx(phi, rel=0.05)


def test_the_fit_is_at_a_minimum_of_the_squared_error() -> None:
    random = np.random.default_rng(3)
    states = random.uniform(0.2, 3, (300, 3))
    budgets = np.array([1.0, 2, 4, 8, 16, 32, 64])
    fractions = np.sort(random.integers(0, 5, (300, 7)) / 4, axis=1)
    phi = fit_phi(states, budgets, fractions)

    def error(p: np.ndarray) -> float:
        return float(((saturation_gain(budgets, states, p) - fractions) ** 2).sum())

    for axis in range(3):
        for step in (-0.02, 0.02):
            moved = phi.copy()
            moved[axis] += step * abs(phi).max()
            assert error(moved) > error(phi)


def test_unusable_gain_data_is_refused() -> None:
    budgets = np.array([1.0, 2.0])
    with pytest.raises(ValueError, match="finite"):
        fit_phi(np.array([[0.5, np.nan, 2.0]]), budgets, np.array([[0.5, 1.0]]))
    with pytest.raises(ValueError, match="needs rounds"):
        fit_phi(np.empty((0, 3)), budgets, np.empty((0, 2)))


def test_fractions_are_of_the_largest_budgets_gain_and_rounds_without_any_are_left_out() -> None:
    fractions, used = gain_fractions(np.array([[1, 2, 5], [1, 1, 1], [3, 3, 3]]))
    assert used.tolist() == [True, False, True]
    assert fractions.tolist() == [[0.0, 0.25, 1.0], [1.0, 1.0, 1.0]]


def test_the_table_interpolates_between_states_and_keeps_the_outer_ones() -> None:
    table = GainTable(
        np.array([1.0, 2.0, 0.0, 1.0]),
        np.array([2.0, 4.0]),
        np.array([1.0, 8.0]),
        np.array([[0.5, 1.0], [1.5, 4.0]]),
    )
    states = np.array([[0.5, 9.0, 1.0], [0.0, 9.0, 0.0], [5.0, 9.0, 5.0]])  # z = 3, 1, 16
    assert table.gain(states).tolist() == [[1.0, 2.5], [0.5, 1.0], [1.5, 4.0]]
    wider = table.on_grid(np.array([0.0, 1.0, 4.5, 8.0, 99.0]))
    assert wider.values[0].tolist() == [0.0, 0.5, 0.75, 1.0, 1.0]


def test_the_fitted_table_holds_the_means_of_equal_groups() -> None:
    random = np.random.default_rng(4)
    states = random.uniform(0, 1, (1000, 3))
    budgets = np.array([1.0, 4.0])
    committed = 1 + np.stack((states[:, 0] > 0.5, 3 * (states[:, 0] > 0.5)), axis=1)
    table = fit_table(states, budgets, committed, bins=4)
    assert len(table.centres) == 4
    assert table.values.mean(axis=0) == pytest.approx(committed.mean(axis=0) - 1)
    assert table.values[0, 1] < 0.2
    assert table.values[-1, 1] > 2.8


def test_the_calibration_is_the_regression_it_says_and_recovers_a_planted_one() -> None:
    random = np.random.default_rng(5)
    states = random.uniform(0, 2, (5000, 3))
    budgets = np.array([2.0, 8.0])
    expected = random.uniform(0, 3, (5000, 2))
    planted = Calibration(budgets, np.array([[0.1, 0.7, 0.3, 0.2], [0.4, 0.9, 0.4, 0.1]]))
    raw = np.stack(
        [
            c[0] + c[1] * expected[:, j] + c[2] * states[:, 2] + c[3] * states[:, 0]
            for j, c in enumerate(planted.coefficients)
        ],
        axis=1,
    )
    gains = planted.gain(expected, states)
    assert gains[:, 0] == pytest.approx(raw[:, 0])
    assert gains[:, 1] == pytest.approx(np.maximum(raw[:, 0], raw[:, 1]))
    fitted = fit_calibration(expected, states, budgets, raw + 1 + random.normal(0, 1, raw.shape))
    assert fitted.coefficients[:, 1] == pytest.approx(planted.coefficients[:, 1], abs=0.05)
    assert fitted.coefficients[:, 2] == pytest.approx(planted.coefficients[:, 2], abs=0.05)
