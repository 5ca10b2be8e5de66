"""From a round's candidates to its trees: score, state, budgets, build.

The engine calls this between its two model forwards, and the overhead benchmark times it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from graft_sglang.components import Components
from graft_sglang.contracts import DecodingState, DraftCandidates, DraftTree
from graft_sglang.signals import decoding_state
from graft_sglang.stages import StageClock


@dataclass(frozen=True, slots=True)
class Plan:
    """What is decided before the target's forward."""

    state: DecodingState
    budgets: torch.Tensor
    """int64 [bs] on the CPU, within the server's buffers."""
    tree: DraftTree


def plan_round(
    parts: Components,
    candidates: DraftCandidates,
    history: torch.Tensor,
    prefix_lens: torch.Tensor,
    max_depths: torch.Tensor | None,
    max_budget: int,
    clock: StageClock,
) -> Plan:
    """Score the edges, choose the budgets, grow the trees.

    Args:
        history: float32 [bs] on the CPU, hist_t of Eq. 15, NaN where there is none.
        prefix_lens: int64 [bs] on the CPU.
        max_depths: int64 [bs] on the CPU, as in ``TreeBuilder.build``.
        max_budget: larger budgets are cut to it.
        clock: the stages ``score``, ``budget`` and ``build`` are booked.
    """
    scores = parts.scorer.score(candidates)
    clock.end("score")
    state = decoding_state(candidates, scores, history, prefix_lens)
    budgets = parts.policy.select(state).clamp(0, max_budget)
    clock.end("budget")
    tree = parts.builder.build(candidates, scores, budgets, max_depths)
    clock.end("build")
    return Plan(state, budgets, tree)
