"""Which widths of a verify are captured as graphs, what they cost, and trees padded to them.

A width is the nodes of a tree with its root. Nothing here imports SGLang.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import torch

from graft_sglang.contracts import DraftTree

BUDGETS = (16, 32, 64, 96, 128, 192, 256)
"""Draft nodes that get a graph, besides the drafter's chain and the largest tree."""


def ladder(block_size: int, max_width: int) -> tuple[int, ...]:
    """Widths worth a graph, ascending: the chain's, those of ``BUDGETS``, the largest.

    Args:
        block_size: the drafter's; its chain is that wide.
        max_width: of the largest tree ever built, at least ``block_size``.
    """
    wanted = {block_size, max_width, *(budget + 1 for budget in BUDGETS)}
    return tuple(sorted(width for width in wanted if width <= max_width))


def snapped(width: int, captured: tuple[int, ...]) -> int:
    """The narrowest captured width that holds ``width``; ``width`` itself where none does.

    Args:
        captured: ascending.
    """
    at = bisect_left(captured, width)
    return captured[at] if at < len(captured) else width


def padded_tree(tree: DraftTree, width: int) -> DraftTree:
    """The same trees in ``width`` columns, at least as many as now."""
    missing = width - tree.token_ids.shape[1]
    if missing <= 0:
        return tree
    words = -(-width // 64) - tree.ancestors.shape[2]

    def pad(values: torch.Tensor, fill: int) -> torch.Tensor:
        return torch.nn.functional.pad(values, (0, missing), value=fill)

    return DraftTree(
        token_ids=pad(tree.token_ids, 0),
        parents=pad(tree.parents, -1),
        depths=pad(tree.depths, 0),
        scores=pad(tree.scores, 0),
        first_child=pad(tree.first_child, -1),
        next_sibling=pad(tree.next_sibling, -1),
        ancestors=torch.nn.functional.pad(tree.ancestors, (0, words, 0, missing)),
        num_nodes=tree.num_nodes,
    )


@dataclass(frozen=True, slots=True)
class GraphShape:
    """What the size of a captured verify's buffers depends on."""

    requests: int
    """Of the largest captured batch."""
    context_len: int
    heads: int
    """Query heads on this GPU."""
    head_dim: int
    kv_splits: int
    """``--triton-attention-num-kv-splits``."""


def buffer_bytes(backend: str, width: int, shape: GraphShape) -> int:
    """Bytes that SGLang's attention backend sets aside for the graphs of one width.

    The graphs' own memory, which no formula gives, comes on top. Both backends keep a list of KV
    slots as long as if every token had a whole context, and a mask. Source:
    ``flashinfer_backend.py:1100``, ``triton_backend.py:1160`` and ``verify_mask.py:11`` of SGLang
    0.5.23.

    Args:
        backend: ``flashinfer`` or ``triton``.
    """
    tokens = shape.requests * width
    if backend == "flashinfer":
        return tokens * shape.context_len * (4 + 1)
    partial_outputs = tokens * shape.heads * shape.kv_splits * (shape.head_dim + 1) * 4
    mask = tokens * (shape.context_len + width)
    return tokens * shape.context_len * 8 + mask + partial_outputs
