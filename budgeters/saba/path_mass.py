"""Expected accepted tokens of nested trees, read off one tree's path probabilities.

A path's probability is the chance that the target follows it; the accepted length is the number
of the tree's nodes on the target's own path, so its mean is the sum of all nodes' probabilities.
"""

from __future__ import annotations

import numpy as np

from graft_sglang.contracts import DraftTree


def expected_tokens(tree: DraftTree, budgets: np.ndarray) -> np.ndarray:
    """e(B), draft tokens expected to be accepted of the first B nodes, float64 [bs, m].

    Args:
        tree: grown for at least the largest budget (or until no edge was left).
        budgets: int64 [m].

    Path scores above 0 (a residual scorer's may be) count as certainty, NaN stays NaN.
    """
    probabilities = np.exp(np.minimum(tree.scores.numpy(), 0.0))
    batch_size, width = probabilities.shape
    unused = np.arange(width)[None, :] >= tree.num_nodes.numpy()[:, None]
    probabilities[unused] = 0.0
    probabilities[:, 0] = 0.0
    totals = probabilities.cumsum(axis=1)
    return totals[:, np.minimum(budgets, width - 1)].reshape(batch_size, len(budgets))
