"""Random batches for builders and masks: unequal trees, ties, -inf edges, both kinds of scores."""

from __future__ import annotations

import torch
from oracle import Case

from graft_sglang.contracts import DraftCandidates, EdgeScores


def random_case(seed: int, batch_size: int, depth: int, k: int, most: int) -> Case:
    """Every third batch is full of ties, every fifth has -inf edges, every second P = K."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(batch_size, depth, k if seed % 2 else 1, k, generator=generator)
    if seed % 3 == 0:
        values = values.round()
    if seed % 5 == 0:
        values[torch.rand(values.shape, generator=generator) < 0.2] = -torch.inf
    candidates = DraftCandidates(
        torch.randint(1000, (batch_size,), generator=generator),
        torch.randint(1000, (batch_size, depth, k), generator=generator),
        torch.zeros(batch_size, depth, k),
        torch.zeros(batch_size, depth - 1),
    )
    return Case(
        candidates,
        EdgeScores(values),
        torch.randint(most + 1, (batch_size,), generator=generator),
        torch.randint(depth + 1, (batch_size,), generator=generator),
    )
