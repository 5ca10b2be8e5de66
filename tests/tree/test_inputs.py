"""What the builders refuse, and the devices and layouts that they accept."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from oracle import ddtree_case, expected, extract

from graft_sglang.contracts import MAX_BUDGET, EdgeScores
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.chain import ChainTreeBuilder

BUILDERS = pytest.mark.parametrize("builder", [BestFirstTreeBuilder(), ChainTreeBuilder()])


def arguments(batch_size=2, depth=3, k=4, budget=5):
    generator = torch.Generator().manual_seed(0)
    return ddtree_case(torch.randn(batch_size, depth, 9, generator=generator), k, budget)


@BUILDERS
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": torch.zeros(2, 3, dtype=torch.int64)}, r"\[bs, D, K\].*not \[2, 3\]"),
        ({"token_ids": torch.zeros(2, 0, 4, dtype=torch.int64)}, "not \\[2, 0, 4\\]"),
        ({"token_ids": torch.zeros(2, 3, 0, dtype=torch.int64)}, "not \\[2, 3, 0\\]"),
        ({"token_ids": torch.zeros(2, 64, 4, dtype=torch.int64)}, "D from 1 to 63"),
        ({"root": torch.zeros(3, dtype=torch.int64)}, r"root must be \[2\], not \[3\]"),
    ],
)
def test_wrong_candidates_are_refused(builder, change, message) -> None:
    case = arguments()
    with pytest.raises(ValueError, match=message):
        builder.build(replace(case.candidates, **change), case.scores, case.budgets)


@BUILDERS
@pytest.mark.parametrize("shape", [(2, 3, 2, 4), (2, 3, 4), (1, 3, 1, 4), (2, 3, 1, 3)])
def test_scores_of_another_shape_are_refused(builder, shape) -> None:
    case = arguments()
    with pytest.raises(ValueError, match=r"edge scores must be \[2, 3, 1 or 4, 4\]"):
        builder.build(case.candidates, EdgeScores(torch.zeros(shape)), case.budgets)


@BUILDERS
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [(0, 0, 0, 0), (1, 2, 0, 3), (1, 2, 3, 3)])
def test_nan_and_plus_infinity_are_refused(builder, wrong, place) -> None:
    case = arguments()
    values = case.scores.values.expand(-1, -1, 4, -1).clone()
    values[place] = wrong
    with pytest.raises(ValueError, match="must not be NaN or \\+inf"):
        builder.build(case.candidates, EdgeScores(values), case.budgets)


@BUILDERS
def test_scores_under_other_parents_than_the_root_are_not_read_at_depth_one(builder) -> None:
    case = arguments()
    values = case.scores.values.expand(-1, -1, 4, -1).clone()
    values[:, 0, 1:] = torch.nan
    tree = builder.build(case.candidates, EdgeScores(values), case.budgets)
    assert not tree.scores.isnan().any()


@BUILDERS
@pytest.mark.parametrize("budgets", [[-1, 4], [4, MAX_BUDGET + 1]])
def test_budgets_out_of_range_are_refused(builder, budgets) -> None:
    case = arguments()
    with pytest.raises(ValueError, match=f"budgets must be from 0 to {MAX_BUDGET}"):
        builder.build(case.candidates, case.scores, torch.tensor(budgets))


@BUILDERS
def test_budgets_and_depths_of_another_shape_are_refused(builder) -> None:
    case = arguments()
    with pytest.raises(ValueError, match=r"budgets must be \[2\], not \[3\]"):
        builder.build(case.candidates, case.scores, torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match=r"max_depths must be \[2\], not \[1\]"):
        builder.build(case.candidates, case.scores, case.budgets, torch.tensor([1]))
    with pytest.raises(ValueError, match="max_depths must not be negative"):
        builder.build(case.candidates, case.scores, case.budgets, torch.tensor([1, -1]))


def test_the_largest_budget_and_depth_are_accepted() -> None:
    case = arguments(1, 63, 9, MAX_BUDGET)
    tree = BestFirstTreeBuilder().build(case.candidates, case.scores, case.budgets)
    assert extract(tree, 0) == expected(case, 0)
    assert tree.num_nodes.tolist() == [MAX_BUDGET + 1]


def test_other_layouts_and_dtypes_are_converted() -> None:
    case = arguments()
    want = BestFirstTreeBuilder().build(case.candidates, case.scores, case.budgets)
    values = case.scores.values.transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    candidates = replace(case.candidates, token_ids=case.candidates.token_ids.to(torch.int32))
    tree = BestFirstTreeBuilder().build(candidates, EdgeScores(values), case.budgets.int())
    assert tree.token_ids.equal(want.token_ids)
    assert tree.scores.equal(want.scores)


def test_fields_have_the_contracts_dtypes() -> None:
    case = arguments(budget=70)
    for builder in (BestFirstTreeBuilder(), ChainTreeBuilder()):
        tree = builder.build(case.candidates, case.scores, case.budgets)
        nodes = tree.token_ids.shape[1]
        for name in ("token_ids", "ancestors"):
            assert getattr(tree, name).dtype == torch.int64
        for name in ("parents", "depths", "first_child", "next_sibling", "num_nodes"):
            assert getattr(tree, name).dtype == torch.int32
        assert tree.scores.dtype == torch.float64
        assert tree.ancestors.shape == (2, nodes, (nodes + 63) // 64)
