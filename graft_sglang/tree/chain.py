"""A single path: at each depth the best child of the node before."""

from __future__ import annotations

import numpy as np
import torch

from graft_sglang.contracts import DraftCandidates, DraftTree, EdgeScores, TreeBuilder
from graft_sglang.tree.arrays import allocate, check_inputs
from graft_sglang.tree.jit import jit

Array = np.ndarray


class ChainTreeBuilder(TreeBuilder):
    """The greedy path by edge score; with ``ddtree`` scores DFlash's chain (Eq. 2).

    It has ``min(budget, D, max_depth)`` nodes. Equal scores go to the smaller candidate index.
    """

    def build(
        self,
        candidates: DraftCandidates,
        scores: EdgeScores,
        budgets: torch.Tensor,
        max_depths: torch.Tensor | None = None,
    ) -> DraftTree:
        inputs = check_inputs(candidates, scores, budgets, max_depths, branching=1)
        arrays = allocate(len(inputs.sizes), inputs.width)
        _follow(inputs.root, inputs.token_ids, inputs.values, inputs.sizes, *arrays)
        return arrays.as_tree()


@jit
def _follow(
    root: Array,
    token_ids: Array,
    values: Array,
    sizes: Array,
    tokens: Array,
    links: Array,
    scores: Array,
    ancestors: Array,
    num_nodes: Array,
) -> None:
    tokens[:] = 0
    links[:] = -1
    links[1] = 0
    scores[:] = 0.0
    ancestors[:] = 0
    for b in range(len(sizes)):
        num_nodes[b] = sizes[b]
        tokens[b, 0] = root[b]
        ancestors[b, 0, 0] = 1
        choice = 0
        for node in range(1, sizes[b]):
            row = values[b, node - 1, choice if values.shape[2] > 1 else 0]
            choice = int(np.argmax(row))
            tokens[b, node] = token_ids[b, node - 1, choice]
            links[0, b, node] = node - 1
            links[1, b, node] = node
            links[2, b, node - 1] = node
            scores[b, node] = scores[b, node - 1] + row[choice]
            # At most MAX_DEPTH + 1 nodes: they fit one word.
            ancestors[b, node, 0] = ancestors[b, node - 1, 0] | np.int64(1) << np.int64(node)
