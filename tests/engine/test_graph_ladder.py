"""The widths that get graphs, trees padded to them, and what they cost."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from graft_sglang.contracts import DraftCandidates, DraftTree, EdgeScores
from graft_sglang.engine.graph_ladder import (
    GraphShape,
    buffer_bytes,
    ladder,
    padded_tree,
    snapped,
)
from graft_sglang.tree.acceptance import accept_paths
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.masks.numpy_backend import query_only_mask


@pytest.mark.parametrize(
    ("block_size", "max_width", "expected"),
    [
        (16, 65, (16, 17, 33, 65)),
        (8, 8, (8,)),
        (12, 81, (12, 17, 33, 65, 81)),
        (16, 1025, (16, 17, 33, 65, 97, 129, 193, 257, 1025)),
    ],
)
def test_a_ladder_ends_at_the_largest_tree(
    block_size: int, max_width: int, expected: tuple[int, ...]
) -> None:
    assert ladder(block_size, max_width) == expected


def test_widths_snap_up() -> None:
    captured = ladder(16, 65)
    assert [snapped(width, captured) for width in (1, 16, 17, 18, 34, 65)] == [
        16,
        16,
        17,
        33,
        65,
        65,
    ]
    assert snapped(66, captured) == 66
    assert all(snapped(width, captured) >= width for width in range(1, 200))


@pytest.fixture
def tree() -> DraftTree:
    generator = torch.Generator().manual_seed(1)
    log_probs, token_ids = torch.randn(3, 5, 40, generator=generator).log_softmax(-1).topk(8)
    candidates = DraftCandidates(torch.tensor([7, 8, 9]), token_ids, log_probs, torch.zeros(3, 4))
    return BestFirstTreeBuilder().build(
        candidates, EdgeScores(log_probs[:, :, None]), torch.tensor([4, 20, 0])
    )


@pytest.mark.parametrize("width", [22, 64, 65, 200])
def test_padding_is_the_contracts(tree: DraftTree, width: int) -> None:
    """As ``DraftTree`` describes columns past a tree's nodes, whatever the width."""
    wide, columns = padded_tree(tree, width), tree.token_ids.shape[1]
    assert wide.ancestors.shape == (3, width, -(-width // 64))
    fills = {"parents": -1, "first_child": -1, "next_sibling": -1}
    for field in dataclasses.fields(DraftTree):
        before, after = getattr(tree, field.name), getattr(wide, field.name)
        assert after.dtype is before.dtype
        if field.name in ("num_nodes", "ancestors"):
            continue
        assert torch.equal(after[:, :columns], before)
        assert (after[:, columns:] == fills.get(field.name, 0)).all()
    among = query_only_mask(wide)
    assert torch.equal(among[:, :columns, :columns], query_only_mask(tree))
    assert torch.equal(
        among[:, columns:], torch.eye(width, dtype=torch.bool)[columns:].expand(3, -1, -1)
    )


def test_a_padded_tree_accepts_the_same(tree: DraftTree) -> None:
    wide = padded_tree(tree, 70)
    tokens = torch.randint(40, wide.token_ids.shape, generator=torch.Generator().manual_seed(2))
    tokens[:, 0] = tree.token_ids[:, 1]
    narrow = accept_paths(tree, tokens[:, : tree.token_ids.shape[1]].contiguous())
    padded = accept_paths(wide, tokens)
    assert torch.equal(narrow.lengths, padded.lengths)
    assert int(narrow.lengths.max()) > 0
    assert torch.equal(narrow.tokens, padded.tokens[:, : narrow.tokens.shape[1]])


def test_a_tree_as_wide_already_stays(tree: DraftTree) -> None:
    assert padded_tree(tree, tree.token_ids.shape[1]) is tree


def test_buffers_of_a_width() -> None:
    """By hand, for 2 requests of 3 nodes at a context of 10."""
    shape = GraphShape(requests=2, context_len=10, heads=4, head_dim=8, kv_splits=5)
    assert buffer_bytes("flashinfer", 3, shape) == 6 * 10 * 4 + 6 * 10
    outputs, sums = 6 * 4 * 5 * 8 * 4, 6 * 4 * 5 * 4
    assert buffer_bytes("triton", 3, shape) == 6 * 10 * 8 + 2 * 3 * (10 + 3) + outputs + sums
