"""The chain builder against the plain-Python reference."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from oracle import Case, assert_tree, ddtree_case, expected
from test_best_first import batches

from graft_sglang.benchmarks import reference
from graft_sglang.tree.chain import ChainTreeBuilder

BUILD = ChainTreeBuilder().build


@settings(max_examples=150, deadline=None)
@given(batches())
def test_every_row_equals_the_reference(case: Case) -> None:
    """Unequal budgets and depth caps (fault 24), per-parent scores, ties, -inf."""
    tree = BUILD(case.candidates, case.scores, case.budgets, case.max_depths)
    for row in range(len(case.budgets)):
        assert_tree(tree, row, expected(case, row, reference.chain))


def test_with_ddtree_scores_it_is_the_drafters_argmax() -> None:
    """DFlash's chain (Eq. 2)."""
    logits = torch.randn(3, 15, 40, generator=torch.Generator().manual_seed(0))
    case = ddtree_case(logits, 8, 64)
    tree = BUILD(case.candidates, case.scores, case.budgets)
    assert tree.token_ids[:, 1:].equal(logits.argmax(-1))
    assert tree.num_nodes.tolist() == [16] * 3
