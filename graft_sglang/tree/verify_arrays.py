"""What a target forward over draft trees is given: tokens, positions, visibility."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from graft_sglang.contracts import DraftTree
from graft_sglang.tree.masks.numba_backend import full_mask


@dataclass(frozen=True, slots=True)
class VerifyArrays:
    """Arrays over all nodes of a batch, every tree padded to the widest, on the CPU."""

    token_ids: torch.Tensor
    """int64 [bs * N]"""
    positions: torch.Tensor
    """int64 [bs * N]"""
    mask: torch.Tensor
    """bool [sum of N * (prefix + N)], SGLang's FULL_MASK."""


class VerifyArraysMaker:
    """Writes the masks into one buffer, which grows to the largest seen: valid until the next."""

    def __init__(self) -> None:
        self._mask = torch.empty(0, dtype=torch.bool)

    def make(self, tree: DraftTree, prefix_lens: torch.Tensor) -> VerifyArrays:
        """Arrays of ``tree`` after prefixes of ``prefix_lens`` (int64 [bs] on the CPU)."""
        batch_size, width = tree.token_ids.shape
        total = width * (sum(prefix_lens.tolist()) + batch_size * width)
        if len(self._mask) < total:
            # A tensor made in inference mode could not be written to outside it.
            with torch.inference_mode(False):
                self._mask = torch.empty(total + total // 2, dtype=torch.bool)
        widths = torch.full_like(prefix_lens, width)
        return VerifyArrays(
            token_ids=tree.token_ids.reshape(-1),
            positions=node_positions(tree, prefix_lens).reshape(-1),
            mask=full_mask(tree, prefix_lens, widths, out=self._mask),
        )


def node_positions(tree: DraftTree, prefix_lens: torch.Tensor) -> torch.Tensor:
    """int64 [bs, N]: prefix length + depth; siblings share a position.

    Padding columns get the root's position.
    """
    return prefix_lens[:, None].to(torch.int64) + tree.depths
