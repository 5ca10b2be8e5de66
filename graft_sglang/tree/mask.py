"""Attention masks and positions of draft trees, in SGLang's FULL_MASK layout."""

from __future__ import annotations

import numpy as np
import torch

from graft_sglang.contracts import DraftTree
from graft_sglang.tree.arrays import as_host_array
from graft_sglang.tree.jit import jit


def node_positions(tree: DraftTree, prefix_lens: torch.Tensor) -> torch.Tensor:
    """int64 [bs, N]: prefix length + depth; siblings share a position.

    Padding columns get the root's position.
    """
    return prefix_lens[:, None].to(torch.int64) + tree.depths


def expand_masks(
    tree: DraftTree,
    prefix_lens: torch.Tensor,
    widths: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Visibility of prefix and nodes, one row-major [w, prefix + w] block a request.

    A node sees the whole prefix, its ancestors and itself. A padding node sees the prefix and
    itself, so that its softmax is finite; no real node sees it.

    Args:
        tree: on the CPU.
        prefix_lens: int64 [bs] on the CPU.
        widths: int64 [bs] on the CPU, query nodes w of each block; default: ``num_nodes``.
        out: bool, 1-D, contiguous, on the CPU: written from its start and returned cut to size.

    Returns:
        bool [sum of w * (prefix + w)], True = visible, the blocks one after the other.

    Raises:
        ValueError: a width is smaller than its tree, or ``out`` is too small.
    """
    sizes = as_host_array(tree.num_nodes, torch.int64)
    prefixes = as_host_array(prefix_lens, torch.int64)
    queries = sizes if widths is None else as_host_array(widths, torch.int64)
    if (queries < sizes).any():
        raise ValueError(f"widths {queries.tolist()} are below the trees' {sizes.tolist()} nodes")
    total = int((queries * (prefixes + queries)).sum())
    if out is None:
        out = torch.empty(total, dtype=torch.bool)
    elif out.numel() < total:
        raise ValueError(f"the mask has {total} elements, its buffer only {out.numel()}")
    _expand(as_host_array(tree.parents, torch.int32), sizes, prefixes, queries, out.numpy())
    return out[:total]


@jit
def _expand(
    parents: np.ndarray,
    sizes: np.ndarray,
    prefixes: np.ndarray,
    widths: np.ndarray,
    mask: np.ndarray,
) -> None:
    start = 0
    for b in range(len(sizes)):
        prefix, width = prefixes[b], widths[b]
        for node in range(width):
            mask[start : start + prefix] = True
            start += prefix
            mask[start : start + width] = False
            mask[start + node] = True
            if node < sizes[b]:
                above = parents[b, node]
                while above >= 0:
                    mask[start + above] = True
                    above = parents[b, above]
            start += width
