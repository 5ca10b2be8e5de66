"""What the policies choose, against direct transcriptions, and when their data is bad."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from saba_cases import GRID, context, document, state

from graft_sglang.budgeters.expected_throughput import (
    DEFAULT_COST,
    ExpectedThroughputPolicy,
)
from graft_sglang.budgeters.saba.cost import AffineCost
from graft_sglang.budgeters.saba.path_mass import expected_tokens
from graft_sglang.budgeters.saba.policy import SabaPolicy
from graft_sglang.budgeters.saba.table import SabaTablePolicy
from graft_sglang.contracts import EdgeScores, RoundOutcome
from graft_sglang.tree.best_first import BestFirstTreeBuilder

PAPER_GRID = tuple(range(32, 513, 16))


@given(
    conf=st.floats(0.0625, 1, width=32),
    degen=st.floats(-0.5, 1, width=32),
    hist=st.floats(1, 8, width=32),
    prefix=st.integers(1, 30_000),
)
def test_saba_is_equations_14_to_17(conf: float, degen: float, hist: float, prefix: int) -> None:
    phi, cost = (40.0, 15.0, 20.0), AffineCost(0.03, 8e-5, 2e-9)
    policy = SabaPolicy(document(PAPER_GRID, phi=phi, cost=cost))
    best, best_utility = 0, -math.inf
    for budget in range(32, 513, 16):
        gain = 1 - math.exp(-budget / (phi[0] * conf + phi[1] * degen + phi[2] * hist))
        utility = gain / (cost.c0 + cost.c1 * budget + cost.c2 * budget * prefix)
        if utility > best_utility * (1 + 1e-12):
            best, best_utility = budget, utility
    assert policy.select(state([conf], [degen], [hist], [prefix])).tolist() == [best]


def test_the_paper_rule_moves_with_every_part_of_the_state() -> None:
    policy = SabaPolicy(document(tuple(range(1, 200))))
    base = policy.select(state([0.5], [0.3], [2.0], [200])).item()
    assert policy.select(state([0.9], [0.3], [2.0], [200])).item() > base
    assert policy.select(state([0.5], [0.9], [2.0], [200])).item() > base
    assert policy.select(state([0.5], [0.3], [6.0], [200])).item() > base
    assert policy.select(state([0.5], [0.3], [2.0], [200_000])).item() < base


@pytest.mark.parametrize("policy_type", [SabaPolicy, SabaTablePolicy])
def test_a_staircase_is_searched_to_its_end(policy_type) -> None:
    """Utility falls behind the first step, then rises above it: the global maximum is beyond."""
    made = document()
    table = made.cost_table
    table.values[:, :] = [[0.010, 0.010, 0.010, 0.018, 0.018, 0.018, 0.018, 0.018]]
    made.gain_table.values[:, :] = [[0, 0.6, 0.9, 1.0, 1.1, 1.3, 2.0, 3.0]]
    policy = policy_type(made, online=False)
    policy._cost = table  # the paper's own cost is a line
    ratios = (1 + made.gain_table.values[0]) / table.values[0]
    assert ratios[3] < ratios[2] < ratios[7]
    chosen = policy.select(state([0.5], [0.3], [2.0], [200])).item()
    expected = ratios if policy_type is SabaTablePolicy else -np.expm1(-np.array(GRID) / 10.5)
    if policy_type is SabaPolicy:
        expected = expected / table.values[0]
    assert chosen == GRID[int(np.argmax(expected))]


def test_the_table_policy_maximises_expected_tokens_a_second() -> None:
    made = document()
    for confidence, history in ((0.1, 1.0), (0.4, 2.0), (0.9, 5.0)):
        chosen = SabaTablePolicy(made, online=False).select(
            state([confidence], [0.3], [history], [500])
        )
        gains = made.gain_table.gain(np.array([[np.float32(confidence), 0.3, history]]))[0]
        seconds = [made.cost_table.over(np.array([float(b)])).seconds(500.0)[0] for b in GRID]
        rates = [(1 + g) / s for g, s in zip(gains, seconds, strict=True)]
        assert chosen.tolist() == [GRID[rates.index(max(rates))]]


def test_no_tree_is_chosen_where_none_pays() -> None:
    made = document()
    made.gain_table.values[:] = 0.0
    assert SabaTablePolicy(made).select(state([0.5])).tolist() == [0]
    dear = ExpectedThroughputPolicy(GRID, AffineCost(1.0, 5.0, 0.0))
    assert dear.select(state([0.5])).tolist() == [0]
    assert SabaPolicy(made).select(state([0.5])).item() > 0


def expected_by_brute_force(given, grid, cost) -> int:
    """Build the tree of every budget on its own; its nodes' probabilities, its cost."""
    best, best_rate = 0, -1.0
    for budget in grid:
        tree = BestFirstTreeBuilder().build(given.candidates, given.scores, torch.tensor([budget]))
        nodes = int(tree.num_nodes[0])
        tokens = 1 + sum(math.exp(tree.scores[0, i]) for i in range(1, nodes))
        rate = tokens / float(cost.over(np.array([float(budget)])).seconds(200.0)[0])
        if rate > best_rate * (1 + 1e-12):
            best, best_rate = budget, rate
    return best


@pytest.mark.parametrize("slope", [0.001, 0.01, 0.03, 0.1])
def test_expected_throughput_equals_brute_force(slope: float) -> None:
    cost = AffineCost(1.0, slope, 0.0)
    grid = tuple(range(0, 65))
    for seed in range(10):
        given = state([0.5], seed=seed)
        policy = ExpectedThroughputPolicy(grid, cost, online=False)
        assert policy.select(given).item() == expected_by_brute_force(given, grid, cost)


def test_a_calibration_is_applied() -> None:
    made = document()
    made.calibration.coefficients[:] = 0.0
    given = state([0.5])
    assert ExpectedThroughputPolicy.from_document(made).select(given).tolist() == [0]
    plain = ExpectedThroughputPolicy(GRID, made.cost_table).select(given).item()
    assert plain > 0


def test_the_padding_of_a_batchs_smaller_trees_brings_nothing() -> None:
    given = state([0.5, 0.5])
    tree = BestFirstTreeBuilder().build(given.candidates, given.scores, torch.tensor([2, 8]))
    expected = expected_tokens(tree, np.array([2, 8, 99]))
    assert expected[0, 0] == expected[0, 1] < 1
    assert expected[1, 1] == expected[1, 2] == pytest.approx(tree.scores[1, 1:].exp().sum().item())


def test_more_nodes_than_a_tree_can_have_are_expected_to_bring_nothing() -> None:
    given = state([0.5])
    narrow = given.candidates
    scores = EdgeScores(given.scores.values[:, :1])
    small = type(narrow)(
        narrow.root, narrow.token_ids[:, :1], narrow.log_probs[:, :1], narrow.hidden_cosines[:, :0]
    )
    given = type(given)(
        given.confidence, given.degeneration, given.history, given.prefix_lens, small, scores
    )
    policy = ExpectedThroughputPolicy((0, 8, 64), AffineCost(1.0, 1e-6, 0.0))
    assert policy.select(given).tolist() == [8]


@pytest.mark.parametrize("make", [SabaPolicy, SabaTablePolicy])
def test_a_nan_state_gets_the_fallback_once_logged_and_the_others_are_decided(make, caplog) -> None:
    policy = make(document(tuple(range(1, 200))))
    good = policy.select(state([0.5, 0.5], history=[2.0, 2.0]))[0].item()
    assert good != 16
    with caplog.at_level(logging.WARNING):
        mixed = policy.select(state([0.5, math.nan], history=[2.0, 2.0]))
        again = policy.select(state([0.5], [math.inf]))
    assert mixed[1].item() == again.item() == 16
    assert mixed[0].item() == good
    assert [r.getMessage() for r in caplog.records] == [
        "GRAFT: a decoding state or cost is not a number; such requests get the fallback budget 16 "
        "(said once)."
    ]


def test_nan_scores_and_nan_costs_get_the_fallback(caplog) -> None:
    given = state([0.5])
    scores = EdgeScores(torch.full_like(given.scores.values, math.nan))
    bad = type(given)(
        given.confidence,
        given.degeneration,
        given.history,
        given.prefix_lens,
        given.candidates,
        scores,
    )
    assert ExpectedThroughputPolicy(GRID, fallback=8).select(bad).tolist() == [8]
    assert "not a number" in caplog.text
    no_cost = SabaPolicy(document(cost=AffineCost(math.nan, 0.0, 0.0)))
    assert no_cost.select(given).tolist() == [16]


def test_no_history_means_the_fit_datas_mean() -> None:
    policy = SabaPolicy(document(tuple(range(1, 200))))
    with_mean = policy.select(state([0.5], history=[2.5]))
    assert policy.select(state([0.5], history=[math.nan])).equal(with_mean)
    assert not policy.select(state([0.5], history=[6.0])).equal(with_mean)


@pytest.mark.parametrize("make", [SabaPolicy, SabaTablePolicy])
def test_a_batch_is_decided_together(make) -> None:
    """The requests of a batch share the padded cost: trees shrink as it grows."""
    policy = make(document(tuple(range(1, 200))), online=False)
    alone = policy.select(state([0.5])).item()
    together = policy.select(state([0.5] * 16))
    assert together.dtype == torch.int64
    assert len(set(together.tolist())) == 1
    assert together[0].item() < alone
    assert policy.select(state([])).tolist() == []


def test_the_grid_is_cut_to_the_buffers(tmp_path) -> None:
    path = tmp_path / "saba.json"
    document().save(path)
    for make in (SabaPolicy, SabaTablePolicy, ExpectedThroughputPolicy):
        assert make.from_context(context(saba_path=str(path), budget=64)).max_budget == 64
        policy = make.from_context(context(max_budget=20, saba_path=str(path), budget=64))
        assert policy.max_budget == 16
    document((32, 64)).save(path)
    with pytest.raises(ValueError, match="smallest budget is 32, but the buffers hold 20"):
        SabaPolicy.from_context(context(max_budget=20, saba_path=str(path)))


def test_expected_throughput_needs_no_file_and_tries_its_neighbours() -> None:
    policy = ExpectedThroughputPolicy.from_context(context(max_budget=100, budget=64))
    assert policy.max_budget == 100
    given = state([0.5])
    chosen = set()
    for _ in range(200):
        budgets = policy.select(given)
        chosen.add(budgets.item())
        seconds = 7 * float(DEFAULT_COST.over(budgets.double().numpy()).seconds(200.0)[0])
        policy.observe(RoundOutcome(budgets, torch.tensor([2]), given.prefix_lens, seconds))
    assert len(chosen) >= 3
    assert policy.choices.sum() == 200


def test_saba_without_a_file_is_refused() -> None:
    for make, name in ((SabaPolicy, "saba"), (SabaTablePolicy, "saba_table")):
        with pytest.raises(ValueError, match=f"'{name}' needs a fitted file"):
            make.from_context(context(saba_path=None))


@pytest.mark.parametrize("grid", [(0,), (-1, 4), (4, 5000)])
def test_a_grid_out_of_range_is_refused(grid) -> None:
    with pytest.raises(ValueError, match="budget grid"):
        ExpectedThroughputPolicy(grid)
