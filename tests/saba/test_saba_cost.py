"""Equation 17, its fit, and the measured table."""

from __future__ import annotations

import numpy as np
import pytest

from graft_sglang.budgeters.saba.cost import (
    SHRINKAGE,
    AffineCost,
    CostTable,
    TimedRounds,
    batch_curve,
    build_table,
    fit_affine,
)


def timed(count: int = 3000, noise: float = 0.02, seed: int = 0) -> tuple[AffineCost, TimedRounds]:
    """Rounds of a planted line with relative noise."""
    random = np.random.default_rng(seed)
    planted = AffineCost(0.03, 2e-4, 1.5e-7)
    budgets = random.choice(np.arange(32.0, 513, 16), count)
    prefix_lens = random.integers(20, 4000, count).astype(np.float64)
    exact = planted.c0 + planted.c1 * budgets + planted.c2 * budgets * prefix_lens
    return planted, TimedRounds(budgets, prefix_lens, exact * random.normal(1, noise, count))


def test_the_cost_is_equation_17() -> None:
    cost = AffineCost(2.0, 0.5, 0.25)
    assert cost.over(np.array([0.0, 4.0])).seconds(8.0).tolist() == [
        2.0,
        2.0 + 0.5 * 4 + 0.25 * 4 * 8,
    ]


def test_a_batch_costs_what_its_padded_tokens_cost_and_batch_one_is_the_tree_itself() -> None:
    cost = AffineCost(2.0, 0.5, 0.25)
    widths = np.array([0.0, 3.0])
    assert (
        batch_curve(cost, widths, 1).seconds(8.0).tolist()
        == cost.over(widths).seconds(8.0).tolist()
    )
    assert batch_curve(cost, widths, 5).seconds(8.0).tolist() == pytest.approx(
        [2.0 + 0.5 * 4 + 0.25 * 4 * 8, 2.0 + 0.5 * 19 + 0.25 * 19 * 8]
    )


def test_the_fit_recovers_planted_parameters_despite_outliers() -> None:
    planted, rounds = timed()
    spoiled = rounds.seconds.copy()
    spoiled[::50] *= 20
    fitted = fit_affine(rounds._replace(seconds=spoiled))
    found, wanted = fitted.cost, planted
    assert (found.c0, found.c1, found.c2) == pytest.approx(
        (wanted.c0, wanted.c1, wanted.c2), rel=0.05
    )
    assert fitted.outliers[::50].all()
    assert fitted.outliers.mean() < 0.04
    assert fitted.r2 > 0.97
    fitted_s = found.c0 + (found.c1 + found.c2 * rounds.prefix_lens) * rounds.budgets
    exact = spoiled - fitted_s
    assert fitted.residuals == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_times_that_are_not_positive_numbers_are_refused(bad) -> None:
    rounds = timed(100)[1]
    rounds.seconds[3] = bad
    with pytest.raises(ValueError, match="positive numbers"):
        fit_affine(rounds)


def test_one_budget_is_not_enough() -> None:
    rounds = timed(100)[1]
    with pytest.raises(ValueError, match="same budget"):
        fit_affine(rounds._replace(budgets=np.full(100, 64.0)))


def test_the_table_keeps_a_staircase_that_the_line_loses() -> None:
    random = np.random.default_rng(7)
    budgets = random.choice([16.0, 32, 48, 64], 4000)
    prefix_lens = random.integers(50, 500, 4000).astype(np.float64)
    stairs = np.where(budgets <= 32, 0.02, 0.05) + 1e-9 * budgets * prefix_lens
    rounds = TimedRounds(budgets, prefix_lens, stairs * random.normal(1, 0.01, 4000))
    table, counts = build_table(rounds, fit_affine(rounds).cost)
    assert counts.sum() == 4000
    assert table.over(np.array([16.0, 32, 48, 64])).seconds(250.0) == pytest.approx(
        [0.02, 0.02, 0.05, 0.05], rel=0.05
    )


def test_a_cell_is_shrunk_to_the_line_by_its_count_and_an_empty_one_is_the_line() -> None:
    line = AffineCost(1.0, 0.1, 0.0)
    rounds = TimedRounds(np.array([10.0] * 4 + [20.0] * 4), np.full(8, 100.0), np.full(8, 4.0))
    table, counts = build_table(rounds, line)
    assert counts.tolist() == [[4, 4]]
    share = 4 / (4 + SHRINKAGE)
    assert table.values.tolist() == [
        pytest.approx([2.0 + share * (4.0 - 2.0), 3.0 + share * (4.0 - 3.0)])
    ]


def test_the_table_is_linear_between_its_points_and_follows_the_line_beyond() -> None:
    line = AffineCost(1.0, 0.5, 0.01)
    table = CostTable(
        line,
        np.array([4.0, 8.0]),
        np.array([100.0, 200.0]),
        np.array([[10.0, 14.0], [20.0, 28.0]]),
    )

    def at(budget: float, prefix: float) -> float:
        return float(table.over(np.array([budget])).seconds(prefix)[0])

    assert at(4, 100) == 10.0
    assert at(6, 150) == pytest.approx((12 + 24) / 2)
    assert at(16, 100) == pytest.approx(14 + 8 * (0.5 + 0.01 * 100))
    assert at(0, 100) == pytest.approx(10 - 4 * (0.5 + 0.01 * 100))
    assert at(8, 300) == pytest.approx(28 + 8 * 0.01 * 100)
