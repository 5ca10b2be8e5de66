"""Host time of one budget decision."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch

from graft_sglang.contracts import (
    BudgetPolicy,
    DecodingState,
    DraftCandidates,
    EdgeScores,
    RoundOutcome,
)

DEPTH = 15
CANDIDATES = 32
WARM_UP = 20
"""Untimed rounds before: the first also compiles."""


def random_state(batch_size: int, parents: int, seed: int = 0) -> DecodingState:
    """A round of depth 15 with 32 candidates a depth; edges given ``parents`` (1 or 32)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(batch_size, DEPTH, 4096, generator=generator)
    log_probs, token_ids = logits.log_softmax(-1).topk(CANDIDATES)
    values = log_probs[:, :, None, :].expand(-1, -1, parents, -1).contiguous()
    return DecodingState(
        confidence=log_probs[:, :, 0].exp().mean(1),
        degeneration=torch.rand(batch_size, generator=generator),
        history=1 + 4 * torch.rand(batch_size, generator=generator),
        prefix_lens=torch.randint(50, 2000, (batch_size,), generator=generator),
        candidates=DraftCandidates(
            torch.zeros(batch_size, dtype=torch.int64),
            token_ids,
            log_probs,
            torch.zeros(batch_size, DEPTH - 1),
        ),
        scores=EdgeScores(values),
    )


@dataclass(frozen=True, slots=True)
class SelectionTimes:
    """Milliseconds of a decision and of learning from the round."""

    select_median: float
    select_p99: float
    observe_median: float


def selection_ms(
    policy: BudgetPolicy, batch_size: int = 1, repeats: int = 2000, parents: int = 1
) -> SelectionTimes:
    """Time ``select`` and ``observe`` by turns on one random round."""
    state = random_state(batch_size, parents)
    times = np.empty((repeats, 2))
    for i in range(-WARM_UP, repeats):
        started = perf_counter()
        budgets = policy.select(state)
        selected = perf_counter()
        outcome = RoundOutcome(budgets, budgets.clamp(max=1) + 1, state.prefix_lens, 0.05)
        handed_over = perf_counter()
        policy.observe(outcome)
        if i >= 0:
            times[i] = selected - started, perf_counter() - handed_over
    select, observe = 1e3 * times.T
    median, p99 = np.percentile(select, (50, 99))
    return SelectionTimes(float(median), float(p99), float(np.median(observe)))
