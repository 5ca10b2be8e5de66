"""One recorded decoding round of one request: what training, fitting and replay need of it.

Shapes use ``D`` draft depths, ``K`` candidates a depth, ``n`` nodes of the verified tree (root
included) and ``a`` accepted draft nodes. No prompt text or prompt token is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

STAGES = ("draft", "candidates", "score", "budget", "build", "verify", "accept", "commit")
"""Stages of a round, in order; ``RoundRecord.stage_seconds`` has one entry each.

The drafter's forward ends with the target's head on its block; what is made of those logits is the
stage ``candidates``.
"""


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A verified round. Token ids are the target's; node 0 is the root."""

    request_id: str
    """The request's id; a client that sets it (``rid``) can tell prompts and tasks apart."""
    round_index: int
    """0-based within the request."""
    greedy: bool
    """False where the target's tokens were drawn at a temperature."""
    prefix_len: int
    """Committed tokens whose KV was in the target's cache."""
    batch_size: int
    """Requests that ran in the same batch."""
    root: int
    token_ids: np.ndarray
    """int32 [D, K]: candidates, most probable first."""
    log_probs: np.ndarray
    """float32 [D, K], nats: log q_d over the full vocabulary."""
    tree_tokens: np.ndarray
    """int32 [n]"""
    tree_parents: np.ndarray
    """int32 [n]: -1 for the root."""
    target_tokens: np.ndarray
    """int32 [n]: the target's own next token at every node."""
    accepted: np.ndarray
    """int32 [a + 1]: nodes of the accepted path, the root first."""
    target_logits: np.ndarray
    """float32 [min(a + 1, D), K]: row i holds the target's logits, at accepted node i, of the
    candidates of depth i + 1."""
    confidence: float
    """conf_t of Eq. 15."""
    degeneration: float
    """degen_t of Eq. 15."""
    history: float
    """hist_t of Eq. 15; NaN without history."""
    budget: int
    """B_t as selected."""
    stage_seconds: np.ndarray
    """float32 [len(STAGES)]: wall time of each stage for the whole batch; NaN if not measured."""

    @property
    def committed(self) -> int:
        """a_t of the paper: accepted draft nodes + 1."""
        return len(self.accepted)

    @property
    def committed_tokens(self) -> np.ndarray:
        """int32 [a + 1]: the accepted draft tokens, then the target's own next token."""
        bonus = self.target_tokens[self.accepted[-1:]]
        return np.concatenate((self.tree_tokens[self.accepted[1:]], bonus))

    @property
    def tree_depths(self) -> np.ndarray:
        """int32 [n]: 0 for the root."""
        depths = np.zeros(len(self.tree_parents), np.int32)
        at = self.tree_parents
        while (below := at >= 0).any():
            depths += below
            at = np.where(below, self.tree_parents[at], -1)
        return depths
