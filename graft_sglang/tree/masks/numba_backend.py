"""Attention masks of draft trees on the host, in every layout (``graft_sglang.tree.masks``)."""

from __future__ import annotations

import numpy as np
import torch

from graft_sglang.contracts import DraftTree
from graft_sglang.tree.arrays import on_host
from graft_sglang.tree.jit import array_at, inlined, jit
from graft_sglang.tree.masks.lengths import check_lengths


def full_mask(
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
    check_lengths(batch_size, prefix_lens=prefix_lens)
    if widths is not None:
        check_lengths(batch_size, widths=widths)
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


def query_only_mask(tree: DraftTree) -> torch.Tensor:
    """Visibility among the nodes alone, bool [bs, N, N]; a padding node sees itself."""
    batch_size, columns = tree.parents.shape
    out = torch.empty(batch_size, columns, columns, dtype=torch.bool)
    full_mask(
        tree,
        torch.zeros(batch_size, dtype=torch.int64),
        torch.full((batch_size,), columns),
        out.view(-1),
    )
    return out


def packed_mask(tree: DraftTree, prefix_lens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """FlashInfer's ``packed_custom_mask`` and its ``mask_indptr``; every tree is N nodes wide.

    Args:
        tree: on the CPU.
        prefix_lens: int64 [bs] on the CPU.

    Returns:
        uint8 [bytes], and int32 [bs + 1], the byte at which each request begins.

    Raises:
        ValueError: ``prefix_lens`` of another batch.
    """
    batch_size, columns = tree.parents.shape
    check_lengths(batch_size, prefix_lens=prefix_lens)
    parents = on_host(tree.parents, torch.int32)
    sizes = on_host(tree.num_nodes, torch.int32)
    prefixes = on_host(prefix_lens, torch.int64)
    starts = torch.zeros(batch_size + 1, dtype=torch.int32)
    starts[1:] = ((columns * (prefixes + columns) + 7) // 8).cumsum(0)
    out = torch.zeros(int(starts[-1]), dtype=torch.uint8)
    _pack(
        parents.data_ptr(),
        columns,
        sizes.data_ptr(),
        prefixes.data_ptr(),
        starts.data_ptr(),
        batch_size,
        out.data_ptr(),
        len(out),
    )
    return out, starts


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
    write_blocks(
        array_at(parents_at, (batch_size, columns), np.int32),
        array_at(sizes_at, batch_size, np.int32),
        array_at(prefixes_at, batch_size, np.int64),
        array_at(widths_at, batch_size, np.int64),
        array_at(mask_at, total, np.bool_),
    )


@jit
def write_blocks(
    parents: np.ndarray,
    sizes: np.ndarray,
    prefixes: np.ndarray,
    widths: np.ndarray,
    mask: np.ndarray,
) -> None:
    """In a kernel: ``full_mask`` of int32 [bs, N] parents, as written into a mask of its size."""
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


@jit
def _pack(
    parents_at: int,
    columns: int,
    sizes_at: int,
    prefixes_at: int,
    starts_at: int,
    batch_size: int,
    bytes_at: int,
    total: int,
) -> None:
    """Set the visible bits of a zeroed buffer."""
    parents = array_at(parents_at, (batch_size, columns), np.int32)
    sizes = array_at(sizes_at, batch_size, np.int32)
    prefixes = array_at(prefixes_at, batch_size, np.int64)
    starts = array_at(starts_at, batch_size + 1, np.int32)
    packed = array_at(bytes_at, total, np.uint8)
    for b in range(batch_size):
        request = packed[starts[b] : starts[b + 1]]
        prefix = prefixes[b]
        for node in range(columns):
            bit = node * (prefix + columns)
            _set_range(request, bit, bit + prefix)
            bit += prefix
            _set_range(request, bit + node, bit + node + 1)
            if node < sizes[b]:
                above = parents[b, node]
                while above >= 0:
                    _set_range(request, bit + above, bit + above + 1)
                    above = parents[b, above]


@inlined
def _set_range(packed: np.ndarray, first: int, end: int) -> None:
    """Set bits ``first`` to ``end`` - 1, the lowest bit of a byte first."""
    while first < end and first % 8:
        packed[first // 8] |= np.uint8(1 << (first % 8))
        first += 1
    while first + 8 <= end:
        packed[first // 8] = 255
        first += 8
    while first < end:
        packed[first // 8] |= np.uint8(1 << (first % 8))
        first += 1
