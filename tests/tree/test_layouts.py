"""Builder and masks against plain Python and plain numpy, on 10,000 random trees."""

from __future__ import annotations

import pytest
import torch
from oracle import expected, extract
from random_trees import random_case

from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.masks import numba_backend, numpy_backend

BATCHES, BATCH = 20, 50


@pytest.mark.parametrize("part", range(10))
def test_a_thousand_trees_and_all_their_masks(part: int) -> None:
    fresh, recycling = BestFirstTreeBuilder(), BestFirstTreeBuilder(recycle=True)
    for seed in range(BATCHES * part, BATCHES * (part + 1)):
        most = 200 if seed % 10 == 3 else 24
        case = random_case(seed, BATCH, 1 + seed % 9, 1 + seed % 11, most)
        arguments = (case.candidates, case.scores, case.budgets, case.max_depths)
        tree = fresh.build(*arguments)
        for row in range(BATCH):
            assert extract(tree, row) == expected(case, row)
        again = recycling.build(*arguments)
        assert torch.equal(again.token_ids, tree.token_ids)
        assert torch.equal(again.parents, tree.parents)
        prefix_lens = torch.randint(30, (BATCH,), generator=torch.Generator().manual_seed(seed))
        compare_masks(again, prefix_lens)


def compare_masks(tree, prefix_lens: torch.Tensor) -> None:
    widths = torch.full_like(prefix_lens, tree.parents.shape[1])
    full = numpy_backend.full_mask(tree, prefix_lens)
    assert torch.equal(numba_backend.full_mask(tree, prefix_lens, widths), full)
    among = numpy_backend.query_only_mask(tree)
    assert torch.equal(numba_backend.query_only_mask(tree), among)
    packed, starts = numpy_backend.packed_mask(tree, prefix_lens)
    ours = numba_backend.packed_mask(tree, prefix_lens)
    assert torch.equal(ours[0], packed)
    assert torch.equal(ours[1], starts)
