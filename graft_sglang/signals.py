"""State signals of a round (Eq. 15), read off its candidates on the host."""

from __future__ import annotations

import math

import numpy as np
import torch

from graft_sglang.contracts import DecodingState, DraftCandidates, EdgeScores
from graft_sglang.tree.arrays import on_host
from graft_sglang.tree.jit import array_at, jit


def decoding_state(
    candidates: DraftCandidates,
    scores: EdgeScores,
    history: torch.Tensor,
    prefix_lens: torch.Tensor,
) -> DecodingState:
    """s_t of Eq. 15: conf_t, degen_t (mean of r plus last r minus first r; 0 at D = 1), hist_t.

    Args:
        history: float32 [bs] on the CPU, NaN where there is none.
        prefix_lens: int64 [bs] on the CPU.
    """
    batch_size, depth, k = candidates.log_probs.shape
    log_probs = on_host(candidates.log_probs, torch.float32)
    cosines = on_host(candidates.hidden_cosines, torch.float32)
    signals = torch.empty(2, batch_size)
    _read(log_probs.data_ptr(), cosines.data_ptr(), batch_size, depth, k, signals.data_ptr())
    confidence, degeneration = signals.unbind()
    return DecodingState(confidence, degeneration, history, prefix_lens, candidates, scores)


@jit
def _read(
    log_probs_at: int, cosines_at: int, batch_size: int, depth: int, k: int, signals_at: int
) -> None:
    log_probs = array_at(log_probs_at, (batch_size, depth, k), np.float32)
    cosines = array_at(cosines_at, (batch_size, depth - 1), np.float32)
    signals = array_at(signals_at, (2, batch_size), np.float32)
    for b in range(batch_size):
        total = 0.0
        for d in range(depth):
            total += math.exp(log_probs[b, d, 0])
        signals[0, b] = total / depth
        signals[1, b] = 0.0
        if depth > 1:
            total = 0.0
            for d in range(depth - 1):
                total += cosines[b, d]
            mean = total / (depth - 1)
            signals[1, b] = mean + cosines[b, depth - 2] - cosines[b, 0]
