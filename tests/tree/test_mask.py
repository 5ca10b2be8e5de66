"""FULL_MASK expansion and positions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import ddtree_case, extract

from graft_sglang.benchmarks import reference
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.chain import ChainTreeBuilder
from graft_sglang.tree.masks.numba_backend import full_mask


def trees(budgets, builder=BestFirstTreeBuilder, seed=0):
    """One tree a budget."""
    generator = torch.Generator().manual_seed(seed)
    case = ddtree_case(torch.randn(len(budgets), 5, 12, generator=generator), 6, 0)
    return builder().build(case.candidates, case.scores, torch.tensor(budgets, dtype=torch.int64))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 40), st.integers(0, 5)), max_size=4),
    st.booleans(),
)
def test_masks_equal_walking_the_parents(requests, padded) -> None:
    """Fault 19: length = sum of q * kv; prefix, ancestors and self, padding nodes apart."""
    tree = trees([budget for budget, _, _ in requests])
    prefixes = [prefix for _, prefix, _ in requests]
    sizes = tree.num_nodes.tolist()
    extra = [more if padded else 0 for _, _, more in requests]
    widths = [size + more for size, more in zip(sizes, extra, strict=True)]
    mask = full_mask(
        tree,
        torch.tensor(prefixes, dtype=torch.int64),
        torch.tensor(widths, dtype=torch.int64) if padded else None,
    )
    assert mask.dtype == torch.bool
    assert len(mask) == sum(w * (p + w) for w, p in zip(widths, prefixes, strict=True))
    start = 0
    for row, (prefix, size, width) in enumerate(zip(prefixes, sizes, widths, strict=True)):
        block = mask[start : start + width * (prefix + width)].view(width, prefix + width)
        start += width * (prefix + width)
        assert block[:, :prefix].all()
        seen = block[:, prefix:]
        assert seen[:size, :size].tolist() == reference.visibility(extract(tree, row))
        assert not seen[:size, size:].any()
        assert seen[size:].nonzero().tolist() == [[n, size + n] for n in range(width - size)]


def test_a_chains_mask_is_causal() -> None:
    """Fault 19: a path of nodes sees what plain decoding would."""
    tree = trees([5], ChainTreeBuilder)
    mask = full_mask(tree, torch.tensor([3])).view(6, 9)
    assert mask.equal(torch.ones(6, 9, dtype=torch.bool).tril(3))


def test_a_given_buffer_is_written_from_its_start() -> None:
    tree = trees([4, 9])
    prefixes = torch.tensor([2, 0])
    buffer = torch.ones(1000, dtype=torch.bool)
    mask = full_mask(tree, prefixes, out=buffer)
    assert mask.data_ptr() == buffer.data_ptr()
    assert mask.equal(full_mask(tree, prefixes))
    assert buffer[len(mask) :].all()


def test_a_small_buffer_or_width_is_refused() -> None:
    tree = trees([4])
    with pytest.raises(ValueError, match="its buffer only 10"):
        full_mask(tree, torch.tensor([2]), out=torch.empty(10, dtype=torch.bool))
    with pytest.raises(ValueError, match="below the trees"):
        full_mask(tree, torch.tensor([2]), torch.tensor([4]))


@pytest.mark.parametrize(
    "buffer", [torch.ones(99, dtype=torch.uint8), torch.ones(99, 2, dtype=torch.bool)[:, 0]]
)
def test_a_buffer_of_another_layout_is_refused(buffer) -> None:
    with pytest.raises(ValueError, match="must be bool, contiguous and on the CPU"):
        full_mask(trees([4]), torch.tensor([2]), out=buffer)


def test_lengths_of_another_batch_are_refused() -> None:
    with pytest.raises(ValueError, match=r"prefix_lens must be \[2\], not \[1\]"):
        full_mask(trees([4, 9]), torch.tensor([2]))
    with pytest.raises(ValueError, match=r"widths must be \[2\], not \[1\]"):
        full_mask(trees([4, 9]), torch.tensor([2, 3]), torch.tensor([12]))


def test_strided_and_narrow_lengths_are_read_as_they_are() -> None:
    tree = trees([4, 9])
    pairs = torch.tensor([[2, 11], [7, 12]], dtype=torch.int32)
    mask = full_mask(tree, pairs[:, 0], pairs[:, 1])
    assert mask.equal(full_mask(tree, torch.tensor([2, 7]), torch.tensor([11, 12])))
