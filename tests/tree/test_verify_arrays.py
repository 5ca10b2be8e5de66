"""What a verify is given: positions and mask of one kernel, in memory used again."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import extract
from random_trees import random_case

from graft_sglang.benchmarks import reference
from graft_sglang.contracts import DraftTree
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.masks.numpy_backend import full_mask
from graft_sglang.tree.verify_arrays import VerifyArraysMaker


def random_tree(seed: int, batch_size: int, most: int) -> DraftTree:
    case = random_case(seed, batch_size, 4, 6, most)
    return BestFirstTreeBuilder().build(case.candidates, case.scores, case.budgets)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 999), st.lists(st.integers(0, 40), max_size=5), st.integers(0, 60)
        ),
        min_size=1,
        max_size=6,
    )
)
def test_batches_of_any_size_one_after_the_other(batches) -> None:
    """Nothing of an earlier, larger or smaller batch is left in the memory."""
    maker = VerifyArraysMaker()
    for seed, prefixes, most in batches:
        tree = random_tree(seed, len(prefixes), most)
        lengths = torch.tensor(prefixes, dtype=torch.int64)
        arrays = maker.make(tree, lengths)
        assert arrays.token_ids.equal(tree.token_ids.flatten())
        assert arrays.positions.equal((lengths[:, None] + tree.depths).flatten())
        assert arrays.mask.equal(full_mask(tree, lengths))


def test_positions_are_prefix_plus_depth() -> None:
    """Fault 20: siblings share a position, whatever their node index."""
    tree = random_tree(3, 2, 40)
    positions = VerifyArraysMaker().make(tree, torch.tensor([100, 7])).positions
    assert positions.dtype == torch.int64
    for row, prefix, found in zip((0, 1), (100, 7), positions.view(2, -1).tolist(), strict=True):
        nodes = extract(tree, row)
        size = len(nodes.tokens)
        walked = [prefix + len(reference.ancestors(nodes, node)) - 1 for node in range(size)]
        assert found == walked + [prefix] * (len(found) - size)


def test_lengths_of_another_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="1 prefix lengths for 2 trees"):
        VerifyArraysMaker().make(random_tree(0, 2, 9), torch.tensor([3]))
