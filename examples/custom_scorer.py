"""An edge scorer of one's own, served by name.

It is a module that registers a class; a server loads it with ``--graft-import``:

    cd examples
    python -m sglang.launch_server --model-path tiny_pair/target \
        --speculative-algorithm GRAFT --speculative-draft-model-path tiny_pair/drafter \
        --graft-import custom_scorer --graft-edge-scorer no_repeats

Whatever a scorer does, the output stays the target's own; only the speed changes.
"""

from __future__ import annotations

import torch

from graft_sglang.contracts import DraftCandidates, EdgeScorer, EdgeScores
from graft_sglang.registry import edge_scorers


@edge_scorers.register("no_repeats")
class NoRepeatsScorer(EdgeScorer):
    """log q_d(c), less a penalty where the child repeats its parent's token.

    A block drafter chooses each depth without knowing the depth before, so it likes to say the
    same token twice; here the parent decides.
    """

    PENALTY = 2.0

    def score(self, candidates: DraftCandidates) -> EdgeScores:
        """float32 [bs, D, K, K]: parents of depth d are the candidates of depth d - 1."""
        ids = candidates.token_ids
        roots = candidates.root[:, None, None].expand(-1, 1, ids.shape[2])
        parents = torch.cat([roots, ids[:, :-1]], dim=1)
        repeats = parents[:, :, :, None] == ids[:, :, None, :]
        return EdgeScores(candidates.log_probs[:, :, None, :] - self.PENALTY * repeats)
