"""The online corrections: they converge, stand still when nothing changes, and stay small."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from saba_cases import document, state

from graft_sglang.budgeters.expected_throughput import ExpectedThroughputPolicy
from graft_sglang.budgeters.saba.cost import AffineCost
from graft_sglang.budgeters.saba.online import (
    MEMORY,
    WARM_UP,
    CostCorrection,
    GainCorrection,
    width_cells,
)
from graft_sglang.budgeters.saba.table import SabaTablePolicy
from graft_sglang.contracts import RoundOutcome

WIDTHS = (1, 4, 16, 64, 256)


def observe(
    correction: CostCorrection, width: int, batch_size: int, predicted: float, measured: float
) -> None:
    """One round of that width."""
    cell = int(width_cells(np.array([width]), batch_size)[0])
    correction.observe(cell, batch_size, predicted, measured)


def factor(correction: CostCorrection, width: float, batch_size: int) -> float:
    """The correction of one width."""
    return float(correction.factors(width_cells(np.array([width]), batch_size), batch_size)[0])


def true_factor(width: int) -> float:
    """A machine whose wide trees are three times as dear as fitted, its narrow ones half as."""
    return 0.5 if width < 16 else 3.0


def ratios(correction: CostCorrection) -> np.ndarray:
    """Factors over the narrowest tree's: what a choice depends on."""
    factors = correction.factors(width_cells(np.array(WIDTHS, np.float64), 1), 1)
    return factors / factors[0]


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_it_converges_to_a_changed_cost(noise: float) -> None:
    random = np.random.default_rng(0)
    correction = CostCorrection()
    for _ in range(4000):
        width = int(random.choice(WIDTHS))
        measured = 0.01 * true_factor(width) * np.exp(noise * random.normal())
        observe(correction, width, 1, 0.01, measured)
    wanted = np.array([true_factor(w) for w in WIDTHS])
    assert ratios(correction) == pytest.approx(wanted / wanted[0], rel=0.25)
    assert factor(correction, 1.0, 1) == pytest.approx(0.5, rel=0.2)


def test_a_common_slowdown_hardly_moves_the_shape() -> None:
    """The width in use must not look dear because the whole machine got slower."""
    correction = CostCorrection()
    for slowdown in (1.0, 2.0):
        for _ in range(500):
            observe(correction, 64, 1, 0.01, 0.01 * slowdown)
    assert factor(correction, 64.0, 1) == pytest.approx(2.0, rel=0.05)
    assert ratios(correction)[3] == pytest.approx(1.0, abs=0.2)


def test_constant_input_that_is_as_predicted_changes_nothing() -> None:
    correction = CostCorrection()
    for i in range(20_000):
        observe(correction, WIDTHS[i % 5], 1, 0.02, 0.02)
    assert correction.factors(width_cells(np.array(WIDTHS, np.float64), 1), 1).tolist() == [1.0] * 5


def test_constant_input_that_is_not_as_predicted_settles() -> None:
    correction = CostCorrection()
    seen = []
    for i in range(40_000):
        width = WIDTHS[i % 5]
        observe(correction, width, 1, 0.02, 0.02 * true_factor(width))
        if i in (19_999, 39_999):
            seen.append(correction.factors(width_cells(np.array(WIDTHS, np.float64), 1), 1))
    assert seen[0] == pytest.approx(seen[1], rel=0.01)


def test_a_slow_start_and_single_stalls_are_survived() -> None:
    correction = CostCorrection()
    for i in range(500):
        stalled = i < 3 or i % 100 == 99
        observe(correction, 64, 1, 0.01, 5.0 if stalled else 0.01)
    assert ratios(correction) == pytest.approx(np.ones(5), abs=0.1)


def test_batch_sizes_have_levels_of_their_own() -> None:
    correction = CostCorrection()
    for _ in range(500):
        observe(correction, 16, 1, 0.01, 0.01)
        observe(correction, 16, 8, 0.01, 0.03)
    assert factor(correction, 16.0, 1) == pytest.approx(1.0, rel=0.1)
    assert factor(correction, 16.0, 8) == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_times_that_mean_nothing_teach_nothing(bad: float) -> None:
    correction = CostCorrection()
    for _ in range(WARM_UP + 5):
        observe(correction, 16, 1, 0.01, bad)
        observe(correction, 16, 1, bad, 0.01)
    assert factor(correction, 16.0, 1) == 1.0


def test_the_gain_factor_converges_forgets_and_does_not_drift() -> None:
    correction = GainCorrection(2)
    cells = np.array([0, 1])
    for _ in range(3000):
        correction.observe(0, 2.0, 2.0)
    assert correction.factors(cells).tolist() == [1.0, 1.0]
    for _ in range(6 * MEMORY):
        correction.observe(0, 2.0, 1.0)
    assert correction.factors(cells)[0] == pytest.approx(0.5, abs=0.03)
    settled = correction.factors(cells)[0]
    for _ in range(6 * MEMORY):
        correction.observe(0, 2.0, 1.0)
    assert correction.factors(cells)[0] == pytest.approx(settled, abs=0.002)
    assert correction.factors(cells)[1] == 1.0


def serve(policy, rounds: int, seconds, gain: float = 1.0, batch_size: int = 1) -> list[int]:
    """Budgets chosen while every round costs ``seconds(width)``."""
    given = state([0.5] * batch_size)
    chosen = []
    for _ in range(rounds):
        budgets = policy.select(given)
        chosen.append(budgets[0].item())
        committed = 1 + (gain * budgets.double().log1p() * 0.5).round().long()
        policy.observe(
            RoundOutcome(budgets, committed, given.prefix_lens, seconds(int(budgets.max())))
        )
    return chosen


def test_memory_does_not_grow_with_the_rounds_served() -> None:
    policy = SabaTablePolicy(document())
    serve(policy, 200, lambda width: 0.01 + 1e-4 * width)
    before = len(pickle.dumps(policy))
    serve(policy, 2000, lambda width: 0.02 + 3e-4 * width, batch_size=3)
    assert len(pickle.dumps(policy)) < before + 500


def test_the_table_policy_leaves_budgets_that_turn_out_dear() -> None:
    def seconds(width: int) -> float:
        return 0.010 + 1e-4 * width if width <= 8 else 0.060

    corrected = SabaTablePolicy(document())
    stubborn = SabaTablePolicy(document(), online=False)
    serve(corrected, 1500, seconds)
    serve(stubborn, 50, seconds)
    assert max(serve(corrected, 50, seconds)) <= 8
    assert min(serve(stubborn, 50, seconds)) > 8


def test_expected_throughput_learns_a_cost_it_was_not_told() -> None:
    """Wide trees are nearly free up to 64 nodes, then dear; the start knows neither."""
    grid = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)

    def seconds(width: int) -> float:
        return 0.05 if width <= 64 else 0.5

    policy = ExpectedThroughputPolicy(grid)
    serve(policy, 6000, seconds)
    last = serve(policy, 64, seconds)
    told = ExpectedThroughputPolicy(grid, AffineCost(1.0, 1e-9, 0.0), online=False)
    assert told.select(state([0.5])).item() == 256
    assert sorted(last)[len(last) // 2] in (32, 64)


def test_an_outcome_whose_budget_was_cut_teaches_no_gain() -> None:
    policy = SabaTablePolicy(document())
    given = state([0.5])
    for _ in range(300):
        policy.select(given)
        policy.observe(
            RoundOutcome(torch.tensor([3]), torch.tensor([1]), given.prefix_lens, 0.0104)
        )
    assert policy._gain_correction is not None
    assert policy._gain_correction.factors(np.arange(3)).tolist() == [1.0] * 3
