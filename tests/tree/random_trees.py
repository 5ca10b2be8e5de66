"""Random batches for builders and masks: unequal trees, ties, -inf edges, both kinds of scores."""

from __future__ import annotations

import pytest
import torch
from oracle import Case

from graft_sglang.contracts import DraftCandidates, EdgeScores, TreeBuilder
from graft_sglang.transfer import candidates_on


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


def refuses_illegal_scores(builder: TreeBuilder) -> None:
    """NaN and +inf: one score, reached by a tree or not, and all; unread rows may hold anything."""
    case = random_case(1, 3, 4, 5, 12)
    candidates = candidates_on(case.candidates, builder.device)
    everywhere = ...
    places = [(0, 0, 0, 0), (1, 1, 4, 0), (2, 3, 0, 4), everywhere]
    for wrong in (torch.nan, torch.inf):
        for place in places:
            values = case.scores.values.clone()
            values[place] = wrong
            scores = EdgeScores(values.to(builder.device))
            with pytest.raises(ValueError, match="must not be NaN or \\+inf"):
                builder.build(candidates, scores, case.budgets)
        values = case.scores.values.clone()
        values[:, 0, 1:] = wrong
        tree = builder.build(candidates, EdgeScores(values.to(builder.device)), case.budgets)
        assert tree.scores.isfinite().all()
