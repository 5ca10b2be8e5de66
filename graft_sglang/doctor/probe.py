"""A scorer of random scores: its trees have branches and depths that no drafter would choose.

Loaded by the doctor's server with ``--graft-import graft_sglang.doctor.probe --graft-edge-scorer
doctor_random``.
"""

from __future__ import annotations

import torch

from graft_sglang.contracts import DraftCandidates, EdgeScorer, EdgeScores
from graft_sglang.registry import edge_scorers

SEED = 6


@edge_scorers.register("doctor_random")
class RandomScorer(EdgeScorer):
    """Every edge scores between -1 and 0, anew each round, the same in every process."""

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(SEED)

    def score(self, candidates: DraftCandidates) -> EdgeScores:
        """float32 [bs, D, K, K]"""
        batch_size, depth, k = candidates.token_ids.shape
        values = -torch.rand(batch_size, depth, k, k, generator=self._generator)
        return EdgeScores(values.to(candidates.log_probs.device))
