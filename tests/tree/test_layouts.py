"""Builder and masks against plain Python and plain numpy, on 10,000 random trees."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from oracle import Case, assert_tree, expected
from random_trees import random_case

from graft_sglang.contracts import DraftCandidates, EdgeScores
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.masks import numba_backend, numpy_backend, triton_backend

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
            assert_tree(tree, row, expected(case, row))
        again = recycling.build(*arguments)
        for field in dataclasses.fields(tree):
            assert torch.equal(getattr(again, field.name), getattr(tree, field.name)), field.name
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


def two_trees():
    """A root with two children, and a root alone."""
    case = Case(
        DraftCandidates(
            torch.zeros(2, dtype=torch.int64),
            torch.tensor([[[1, 2]], [[1, 2]]]),
            torch.zeros(2, 1, 2),
            torch.zeros(2, 0),
        ),
        EdgeScores(torch.zeros(2, 1, 1, 2)),
        torch.tensor([2, 0]),
    )
    return BestFirstTreeBuilder().build(case.candidates, case.scores, case.budgets)


@pytest.mark.parametrize("backend", [numpy_backend, numba_backend])
def test_packed_bits_are_those_worked_out_by_hand(backend) -> None:
    """FlashInfer: the lowest bit of a byte first, a request's rest of a byte 0, starts in bytes.

    Rows with prefix 1: 1100 1110 1101; without, the last two nodes padding: 100 010 001.
    """
    packed, starts = backend.packed_mask(two_trees(), torch.tensor([1, 0]))
    assert packed.tolist() == [0b01110011, 0b00001011, 0b00010001, 0b1]
    assert starts.tolist() == [0, 2, 4]
    assert (packed.dtype, starts.dtype) == (torch.uint8, torch.int32)


@pytest.mark.parametrize("prefixes", [[4], [4, 5, 6]])
@pytest.mark.parametrize("layout", ["full_mask", "packed_mask"])
@pytest.mark.parametrize(
    ("backend", "sizes"), [(numpy_backend, ()), (numba_backend, ()), (triton_backend, (99, 6))]
)
def test_prefixes_of_another_batch_are_refused(backend, sizes, layout, prefixes) -> None:
    """A kernel would read beyond them."""
    with pytest.raises(ValueError, match=rf"prefix_lens must be \[2\], not \[{len(prefixes)}\]"):
        getattr(backend, layout)(two_trees(), torch.tensor(prefixes), *sizes)
