"""Attention masks and positions of draft trees, in SGLang's FULL_MASK layout."""

from __future__ import annotations

import numpy as np
import torch

from graft_sglang.contracts import DraftTree
from graft_sglang.tree.jit import jit


def node_positions(tree: DraftTree, prefix_lens: torch.Tensor) -> torch.Tensor:
    """int64 [bs, N]: prefix length + depth; siblings share a position."""
    return prefix_lens[:, None].to(torch.int64) + tree.depths


def expand_masks(
    tree: DraftTree, prefix_lens: torch.Tensor, widths: torch.Tensor | None = None
) -> torch.Tensor:
    """Visibility of prefix and nodes, one row-major [w, prefix + w] block a request.

    A node sees the whole prefix, its ancestors and itself. A padding node sees the prefix and
    itself, so that its softmax is finite; no real node sees it.

    Args:
        tree: on the CPU.
        prefix_lens: int64 [bs] on the CPU.
        widths: int64 [bs] on the CPU, query nodes of each block; default: ``num_nodes``.

    Returns:
        bool [sum of w * (prefix + w)], True = visible, the blocks one after the other.

    Raises:
        ValueError: a width is smaller than its tree.
    """
    sizes = tree.num_nodes.to(torch.int64)
    if widths is None:
        widths = sizes
    if (widths < sizes).any():
        raise ValueError(f"widths {widths.tolist()} are below the trees' {sizes.tolist()} nodes")
    total = int((widths * (prefix_lens + widths)).sum())
    mask = np.zeros(total, np.bool_)
    _expand(
        tree.ancestors.numpy(),
        tree.num_nodes.numpy(),
        prefix_lens.numpy(),
        widths.numpy(),
        mask,
    )
    return torch.from_numpy(mask)


@jit
def _expand(ancestors, num_nodes, prefix_lens, widths, mask):
    start = 0
    for b in range(num_nodes.shape[0]):
        prefix = prefix_lens[b]
        for node in range(widths[b]):
            mask[start : start + prefix] = True
            start += prefix
            if node >= num_nodes[b]:
                mask[start + node] = True
            else:
                for other in range(node + 1):
                    word = ancestors[b, node, other // 64]
                    mask[start + other] = (word >> np.int64(other % 64)) & np.int64(1)
            start += widths[b]
