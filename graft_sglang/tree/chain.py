"""A single path: at each depth the best child of the node before."""

from __future__ import annotations

import numpy as np
import torch

from graft_sglang.contracts import DraftCandidates, DraftTree, EdgeScores, TreeBuilder
from graft_sglang.tree.arrays import allocate, check_inputs
from graft_sglang.tree.jit import array_at, jit

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
        _follow(
            inputs.root.data_ptr(),
            inputs.token_ids.data_ptr(),
            inputs.values.data_ptr(),
            *inputs.extent,
            inputs.sizes,
            inputs.width,
            *arrays.addresses,
        )
        return arrays.tree


@jit
def _follow(
    root_at: int,
    token_ids_at: int,
    values_at: int,
    depth: int,
    wide: int,
    k: int,
    sizes: Array,
    width: int,
    tokens_at: int,
    links_at: int,
    scores_at: int,
    ancestors_at: int,
    num_nodes_at: int,
) -> None:
    batch_size = len(sizes)
    tokens = array_at(tokens_at, (batch_size, width), np.int64)
    links = array_at(links_at, (4, batch_size, width), np.int32)
    scores = array_at(scores_at, (batch_size, width), np.float64)
    ancestors = array_at(ancestors_at, (batch_size, width, 1), np.int64)
    num_nodes = array_at(num_nodes_at, batch_size, np.int32)
    root = array_at(root_at, batch_size, np.int64)
    token_ids = array_at(token_ids_at, (batch_size, depth, k), np.int64)
    values = array_at(values_at, (batch_size, depth, wide, k), np.float32)
    tokens[:] = 0
    links[:] = -1
    links[1] = 0
    scores[:] = 0.0
    ancestors[:] = 0
    for b in range(batch_size):
        num_nodes[b] = sizes[b]
        tokens[b, 0] = root[b]
        ancestors[b, 0, 0] = 1
        choice = 0
        for node in range(1, sizes[b]):
            row = values[b, node - 1, choice if wide > 1 else 0]
            choice = int(np.argmax(row))
            tokens[b, node] = token_ids[b, node - 1, choice]
            links[0, b, node] = node - 1
            links[1, b, node] = node
            links[2, b, node - 1] = node
            scores[b, node] = scores[b, node - 1] + row[choice]
            # At most MAX_DEPTH + 1 nodes: they fit one word.
            ancestors[b, node, 0] = ancestors[b, node - 1, 0] | np.int64(1) << np.int64(node)
