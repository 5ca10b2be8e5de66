"""The layouts of trees that are on a device, without waiting for it.

Sizes of the outputs are for the caller to know, who has the prefix lengths on the host too: to ask
the device for them would cost a wait.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from graft_sglang.contracts import DraftTree
from graft_sglang.tree.masks.lengths import check_lengths

BLOCK = 256


def query_only_mask(tree: DraftTree) -> torch.Tensor:
    """bool [bs, N, N]: visibility among the nodes alone."""
    batch_size, columns = tree.parents.shape
    zeros = torch.zeros(batch_size, dtype=torch.int64, device=tree.parents.device)
    flat = full_mask(tree, zeros, batch_size * columns * columns, 0)
    return flat.view(batch_size, columns, columns)


def full_mask(tree: DraftTree, prefix_lens: torch.Tensor, total: int, longest: int) -> torch.Tensor:
    """bool [total]; every tree is N nodes wide.

    Args:
        tree: on the device; ``ancestors`` contiguous.
        prefix_lens: int64 [bs] on the device.
        total: sum of N * (prefix + N).
        longest: largest prefix.

    Raises:
        ValueError: ``prefix_lens`` of another batch.
    """
    batch_size, columns, words = tree.ancestors.shape
    check_lengths(batch_size, prefix_lens=prefix_lens)
    sizes = columns * (prefix_lens + columns)
    starts = sizes.cumsum(0) - sizes
    out = torch.empty(total, dtype=torch.bool, device=tree.parents.device)
    if total:
        _full[(batch_size, columns, triton.cdiv(longest + columns, BLOCK))](
            tree.ancestors, tree.num_nodes, prefix_lens, starts, out, columns, words, BLOCK
        )
    return out


def packed_mask(
    tree: DraftTree, prefix_lens: torch.Tensor, total: int, longest: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """uint8 [total] and int32 [bs + 1], the byte at which each request begins.

    Args:
        tree: on the device; ``ancestors`` contiguous.
        prefix_lens: int64 [bs] on the device.
        total: bytes, the sum of ceil(N * (prefix + N) / 8).
        longest: largest prefix.

    Raises:
        ValueError: ``prefix_lens`` of another batch.
    """
    batch_size, columns, words = tree.ancestors.shape
    check_lengths(batch_size, prefix_lens=prefix_lens)
    device = tree.parents.device
    starts = torch.zeros(batch_size + 1, dtype=torch.int32, device=device)
    starts[1:] = ((columns * (prefix_lens + columns) + 7) // 8).cumsum(0)
    out = torch.empty(total, dtype=torch.uint8, device=device)
    if total:
        most = (columns * (longest + columns) + 7) // 8
        _packed[(batch_size, triton.cdiv(most, BLOCK))](
            tree.ancestors, tree.num_nodes, prefix_lens, starts, out, columns, words, BLOCK
        )
    return out, starts


@triton.jit
def _visible(ancestors, size, request, row, column, prefix, columns, words, wanted):
    """Whether node ``row`` sees key ``column`` of prefix and nodes, where ``wanted``."""
    node = column - prefix
    among = wanted & (node >= 0) & (row < size)
    word = tl.load(ancestors + (request * columns + row) * words + node // 64, mask=among, other=0)
    seen = ((word >> (node % 64).to(tl.int64)) & 1) != 0
    return (node < 0) | (node == row) | (among & seen)


@triton.jit
def _full(ancestors, num_nodes, prefix_lens, starts, out, columns, words, BLOCK: tl.constexpr):
    request = tl.program_id(0)
    row = tl.program_id(1)
    prefix = tl.load(prefix_lens + request)
    size = tl.load(num_nodes + request)
    column = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = column < prefix + columns
    seen = _visible(ancestors, size, request, row, column, prefix, columns, words, inside)
    start = tl.load(starts + request) + row * (prefix + columns)
    tl.store(out + start + column, seen, mask=inside)


@triton.jit
def _packed(ancestors, num_nodes, prefix_lens, starts, out, columns, words, BLOCK: tl.constexpr):
    request = tl.program_id(0)
    prefix = tl.load(prefix_lens + request)
    size = tl.load(num_nodes + request)
    start = tl.load(starts + request)
    count = tl.load(starts + request + 1) - start
    byte = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    bits = columns * (prefix + columns)
    packed = tl.zeros([BLOCK], dtype=tl.int32)
    for place in tl.static_range(8):
        bit = byte.to(tl.int64) * 8 + place
        inside = bit < bits
        row = bit // (prefix + columns)
        column = bit % (prefix + columns)
        seen = _visible(ancestors, size, request, row, column, prefix, columns, words, inside)
        packed += (seen & inside).to(tl.int32) << place
    tl.store(out + start + byte, packed.to(tl.uint8), mask=byte < count)
