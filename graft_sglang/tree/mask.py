"""Attention masks and positions of draft trees, in SGLang's FULL_MASK layout."""

from __future__ import annotations

import numpy as np
import torch

from graft_sglang.contracts import DraftTree
from graft_sglang.tree.arrays import on_host
from graft_sglang.tree.jit import array_at, jit


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
        ValueError: arguments of other shapes, a width smaller than its tree, or an ``out`` that
            is too small or laid out differently.
    """
    batch_size, columns = tree.parents.shape
    for name, given in (("prefix_lens", prefix_lens), ("widths", widths)):
        if given is not None and given.shape != (batch_size,):
            raise ValueError(f"{name} must be [{batch_size}], not {list(given.shape)}")
    sizes = on_host(tree.num_nodes, torch.int32)
    prefixes = on_host(prefix_lens, torch.int64)
    queries = sizes.to(torch.int64) if widths is None else on_host(widths, torch.int64)
    total = _total(sizes.data_ptr(), prefixes.data_ptr(), queries.data_ptr(), batch_size)
    if total < 0:
        raise ValueError(f"widths {queries.tolist()} are below the trees' {sizes.tolist()} nodes")
    if out is None:
        out = torch.empty(total, dtype=torch.bool)
    elif out.dtype != torch.bool or not out.is_cpu or not out.is_contiguous():
        raise ValueError("the mask's buffer must be bool, contiguous and on the CPU")
    elif out.numel() < total:
        raise ValueError(f"the mask has {total} elements, its buffer only {out.numel()}")
    parents = on_host(tree.parents, torch.int32)
    _expand(
        parents.data_ptr(),
        columns,
        sizes.data_ptr(),
        prefixes.data_ptr(),
        queries.data_ptr(),
        batch_size,
        out.data_ptr(),
        total,
    )
    return out[:total]


@jit
def _total(sizes_at: int, prefixes_at: int, widths_at: int, batch_size: int) -> int:
    """Elements of the mask, or -1 where a width is smaller than its tree."""
    sizes = array_at(sizes_at, batch_size, np.int32)
    prefixes = array_at(prefixes_at, batch_size, np.int64)
    widths = array_at(widths_at, batch_size, np.int64)
    total = 0
    for b in range(batch_size):
        if widths[b] < sizes[b]:
            return -1
        total += widths[b] * (prefixes[b] + widths[b])
    return total


@jit
def _expand(
    parents_at: int,
    columns: int,
    sizes_at: int,
    prefixes_at: int,
    widths_at: int,
    batch_size: int,
    mask_at: int,
    total: int,
) -> None:
    parents = array_at(parents_at, (batch_size, columns), np.int32)
    sizes = array_at(sizes_at, batch_size, np.int32)
    prefixes = array_at(prefixes_at, batch_size, np.int64)
    widths = array_at(widths_at, batch_size, np.int64)
    mask = array_at(mask_at, total, np.bool_)
    start = 0
    for b in range(batch_size):
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
