"""The joint decision of a batch against every combination of budgets."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from graft_sglang.budgeters.saba.joint import decide


def utility(values: np.ndarray, costs: np.ndarray, chosen: tuple[int, ...]) -> float:
    """Summed value over the cost of the widest."""
    return sum(values[i, j] for i, j in enumerate(chosen)) / costs[max(chosen)]


@pytest.mark.parametrize("seed", range(60))
def test_it_equals_brute_force(seed: int) -> None:
    """Rising, falling and ragged values; costs that are stairs or not even rising."""
    random = np.random.default_rng(seed)
    batch_size, budgets = int(random.integers(1, 5)), int(random.integers(1, 6))
    values = random.uniform(0, 3, (batch_size, budgets))
    costs = random.uniform(1, 3, budgets)
    if seed % 3 == 0:
        values, costs = np.sort(values, axis=1), np.sort(costs).round()
    best = max(
        utility(values, costs, chosen) for chosen in product(range(budgets), repeat=batch_size)
    )
    chosen, reached = decide(values, costs)
    assert utility(values, costs, tuple(chosen)) == pytest.approx(best)
    assert reached == pytest.approx(best)


def test_at_batch_one_it_is_the_papers_argmax() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        values, costs = random.uniform(0, 3, (1, 31)), random.uniform(1, 3, 31)
        ratios = [v / c for v, c in zip(values[0], costs, strict=True)]
        assert decide(values, costs)[0].tolist() == [ratios.index(max(ratios))]


def test_of_equal_utilities_the_smaller_budget_is_taken() -> None:
    assert decide(np.array([[1.0, 2.0, 4.0]]), np.array([1.0, 2.0, 4.0]))[0].tolist() == [0]
    values = np.array([[1.0, 1.0, 9.0], [1.0, 1.0, 1.0]])
    assert decide(values, np.array([1.0, 1.0, 1.5]))[0].tolist() == [2, 0]


def test_a_cheap_width_is_not_credited_with_values_that_no_tree_of_it_has() -> None:
    values = np.array([[5.0, 0.0], [5.0, 0.0]])
    chosen, reached = decide(values, np.array([10.0, 6.0]))
    assert chosen.tolist() == [0, 0]
    assert reached == 1.0
