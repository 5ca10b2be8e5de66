"""Several tensors between host and device in one copy: each copy of a round costs a wait."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from graft_sglang.contracts import DraftCandidates

ALIGNMENT = 16
"""Bytes; every tensor begins at a multiple of it, so that any dtype can be viewed."""


def copy_together(
    tensors: Sequence[torch.Tensor], device: torch.device | str
) -> list[torch.Tensor]:
    """The tensors on ``device``, by a single copy where they are elsewhere.

    Tensors already there are returned as they are. Copied ones are contiguous and share memory
    that nothing else uses. All must be on one device.
    """
    device = torch.device(device)
    if all(tensor.device == device for tensor in tensors):
        return list(tensors)
    return unpack(pack(tensors).to(device), tensors)


def pack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """uint8 [bytes]: the tensors one after the other, on their own device."""
    pieces = []
    for tensor in tensors:
        raw = tensor.contiguous().view(-1).view(torch.uint8)
        pieces += [raw, raw.new_empty(-len(raw) % ALIGNMENT)]
    return torch.cat(pieces)


def unpack(packed: torch.Tensor, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Views of ``packed`` with the dtypes and shapes of ``like``, which were packed."""
    found, start = [], 0
    for tensor in like:
        size = tensor.numel() * tensor.element_size()
        found.append(packed[start : start + size].view(tensor.dtype).view(tensor.shape))
        start += size + -size % ALIGNMENT
    return found


def candidates_on(candidates: DraftCandidates, device: torch.device | str) -> DraftCandidates:
    """The candidates on ``device``, by at most one copy."""
    return DraftCandidates(
        *copy_together(
            (
                candidates.root,
                candidates.token_ids,
                candidates.log_probs,
                candidates.hidden_cosines,
            ),
            device,
        )
    )
