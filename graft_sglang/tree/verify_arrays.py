"""What a target forward over draft trees is given: tokens, positions, visibility."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from graft_sglang.contracts import DraftTree
from graft_sglang.tree.arrays import on_host
from graft_sglang.tree.jit import array_at, jit
from graft_sglang.tree.masks.numba_backend import write_blocks


@dataclass(frozen=True, slots=True)
class VerifyArrays:
    """Arrays over all nodes of a batch, every tree padded to the widest, on the CPU."""

    token_ids: torch.Tensor
    """int64 [bs * N]"""
    positions: torch.Tensor
    """int64 [bs * N]: prefix length + depth; siblings share one. Padding: the root's."""
    mask: torch.Tensor
    """bool [sum of N * (prefix + N)], SGLang's FULL_MASK."""


class VerifyArraysMaker:
    """Writes into its own memory, which grows to the largest seen: valid until the next batch.

    One kernel writes positions and mask: as single torch calls they took as long as a tree of 64
    nodes takes to grow.
    """

    def __init__(self) -> None:
        self._positions = torch.empty(0, dtype=torch.int64)
        self._mask = torch.empty(0, dtype=torch.bool)

    def make(self, tree: DraftTree, prefix_lens: torch.Tensor) -> VerifyArrays:
        """Arrays of ``tree``, on the CPU, after prefixes of ``prefix_lens`` (int64 [bs])."""
        batch_size, width = tree.token_ids.shape
        if len(prefix_lens) != batch_size:
            raise ValueError(f"{len(prefix_lens)} prefix lengths for {batch_size} trees")
        parents = on_host(tree.parents, torch.int32)
        depths = on_host(tree.depths, torch.int32)
        sizes = on_host(tree.num_nodes, torch.int32)
        prefixes = on_host(prefix_lens, torch.int64)
        inputs = (
            parents.data_ptr(),
            depths.data_ptr(),
            sizes.data_ptr(),
            prefixes.data_ptr(),
            batch_size,
            width,
        )
        total = self._write(inputs)
        if total > len(self._mask) or batch_size * width > len(self._positions):
            self._grow(batch_size * width, total)
            self._write(inputs)
        return VerifyArrays(
            token_ids=tree.token_ids.reshape(-1),
            positions=self._positions[: batch_size * width],
            mask=self._mask[:total],
        )

    def _write(self, inputs: tuple[int, int, int, int, int, int]) -> int:
        return _write(
            *inputs,
            self._positions.data_ptr(),
            len(self._positions),
            self._mask.data_ptr(),
            len(self._mask),
        )

    def _grow(self, nodes: int, total: int) -> None:
        # A tensor made in inference mode could not be written to outside it.
        with torch.inference_mode(False):
            if nodes > len(self._positions):
                self._positions = torch.empty(2 * nodes, dtype=torch.int64)
            if total > len(self._mask):
                self._mask = torch.empty(total + total // 2, dtype=torch.bool)


@jit
def _write(
    parents_at: int,
    depths_at: int,
    sizes_at: int,
    prefixes_at: int,
    batch_size: int,
    width: int,
    positions_at: int,
    positions_space: int,
    mask_at: int,
    mask_space: int,
) -> int:
    """Elements of the mask; writes only where both spaces suffice."""
    prefixes = array_at(prefixes_at, batch_size, np.int64)
    total = width * (np.sum(prefixes) + batch_size * width)
    nodes = batch_size * width
    if nodes > positions_space or total > mask_space:
        return total
    depths = array_at(depths_at, (batch_size, width), np.int32)
    positions = array_at(positions_at, (batch_size, width), np.int64)
    widths = np.empty(batch_size, np.int64)
    for b in range(batch_size):
        widths[b] = width
        for node in range(width):
            positions[b, node] = prefixes[b] + depths[b, node]
    write_blocks(
        array_at(parents_at, (batch_size, width), np.int32),
        array_at(sizes_at, batch_size, np.int32),
        prefixes,
        widths,
        array_at(mask_at, total, np.bool_),
    )
    return total
