"""A single path: at each depth the best child of the node before."""

from __future__ import annotations

import torch

from graft_sglang.contracts import DraftCandidates, DraftTree, EdgeScores, TreeBuilder
from graft_sglang.tree.arrays import allocate, check_inputs, finish


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
        inputs = check_inputs(candidates, scores, budgets, max_depths)
        lengths = [min(pair) for pair in zip(inputs.budgets, inputs.max_depths, strict=True)]
        arrays = allocate(len(lengths), int(max(lengths, default=0)) + 1)
        for row, length in enumerate(lengths):
            arrays.num_nodes[row] = length + 1
            arrays.token_ids[row, 0] = inputs.root[row]
            arrays.ancestors[row, 0, 0] = 1
            choice = 0
            for node in range(1, length + 1):
                edges = inputs.values[row, node - 1]
                edges = edges[choice if len(edges) > 1 else 0]
                if not (edges < float("inf")).all():
                    raise ValueError("edge scores must not be NaN or +inf")
                choice = int(edges.argmax())
                arrays.token_ids[row, node] = inputs.token_ids[row, node - 1, choice]
                arrays.parents[row, node] = node - 1
                arrays.depths[row, node] = node
                arrays.scores[row, node] = arrays.scores[row, node - 1] + edges[choice]
                arrays.first_child[row, node - 1] = node
                arrays.ancestors[row, node, 0] = (2 << node) - 1
        return finish(arrays)
