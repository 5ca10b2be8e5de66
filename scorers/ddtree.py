"""DDTree's edge score: the drafter's own marginal, whatever the parent."""

from __future__ import annotations

from graft_sglang.contracts import DraftCandidates, EdgeScorer, EdgeScores


class DDTreeScorer(EdgeScorer):
    """S(p, c, d) = log q_d(c) (Eq. 3)."""

    def score(self, candidates: DraftCandidates) -> EdgeScores:
        return EdgeScores(candidates.log_probs[:, :, None, :])
