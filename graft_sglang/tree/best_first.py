"""Best-first draft trees: DDTree's heap, for parent-conditional scores too, in Numba.

The heap pops the path of the highest score (Eq. 3, Eq. 13: the sum of its edges, accumulated in
float64 from float32 edges), then offers its next sibling and its first child. Equal scores pop
in the lexicographic order of their rank paths (rank = place among the parent's children; a path
before its own extensions), which is the order of DDTree's release. Children of a parent are in
order of falling edge score, equal ones by candidate index. Edges of -inf come last.
"""

from __future__ import annotations

import numpy as np
import torch

from graft_sglang.contracts import (
    ComponentContext,
    DraftCandidates,
    DraftTree,
    EdgeScores,
    TreeBuilder,
)
from graft_sglang.token_pairs import TokenPairScores
from graft_sglang.tree.arrays import TreeMemory, check_inputs
from graft_sglang.tree.heap import push, replace_top
from graft_sglang.tree.jit import array_at, inlined, jit
from graft_sglang.tree.pair_rows import NO_PAIRS, fetch_children, fill_row, pair_arguments

Array = np.ndarray

FETCH_AHEAD = 2
"""Depths whose children's vectors are loaded when a tree reaches the first of them."""


class BestFirstTreeBuilder(TreeBuilder):
    """Grows each tree in order of falling path score until its budget is used up."""

    def __init__(self, recycle: bool = False) -> None:
        """With ``recycle`` a tree is overwritten by the next one of its batch size and width."""
        self._memory = TreeMemory(recycle)

    @classmethod
    def from_context(cls, context: ComponentContext) -> BestFirstTreeBuilder:
        """A server is done with a tree before it builds the next one."""
        del context
        return cls(recycle=True)

    def build(
        self,
        candidates: DraftCandidates,
        scores: EdgeScores,
        budgets: torch.Tensor,
        max_depths: torch.Tensor | None = None,
    ) -> DraftTree:
        branching = candidates.token_ids.shape[-1]
        pairs = NO_PAIRS
        if isinstance(scores, TokenPairScores) and scores.rows.is_cpu:
            pairs = pair_arguments(scores)
            scores = scores.marginals
        inputs = check_inputs(candidates, scores, budgets, max_depths, branching)
        arrays = self._memory.arrays(len(inputs.sizes), inputs.width)
        known = _grow_batch(
            inputs.root.data_ptr(),
            inputs.token_ids.data_ptr(),
            inputs.values.data_ptr(),
            *inputs.extent,
            inputs.sizes,
            inputs.max_depths,
            inputs.width,
            *arrays.addresses,
            *pairs,
        )
        if not known:
            raise ValueError("the candidates hold token ids that the scorer's tables do not")
        return arrays.tree


@jit
def _grow_batch(
    root_at: int,
    token_ids_at: int,
    values_at: int,
    depth: int,
    wide: int,
    k: int,
    sizes: Array,
    max_depths: Array,
    width: int,
    tokens_at: int,
    links_at: int,
    scores_at: int,
    ancestors_at: int,
    num_nodes_at: int,
    table_at: int,
    vocabulary: int,
    vector_size: int,
    depth_vectors_at: int,
    known_depths: int,
    scale: float,
    normalized: bool,
) -> bool:
    """Grow all trees; False where a token has no row in the table of token pairs."""
    batch_size = len(sizes)
    by_pairs = table_at != 0
    table = array_at(table_at, (vocabulary, 2, vector_size), np.float32)
    depth_vectors = array_at(depth_vectors_at, (known_depths, vector_size), np.float32)
    vector = np.empty(vector_size, np.float32)
    tokens = array_at(tokens_at, (batch_size, width), np.int64)
    links = array_at(links_at, (4, batch_size, width), np.int32)
    scores = array_at(scores_at, (batch_size, width), np.float64)
    ancestors = array_at(ancestors_at, (batch_size, width, (width + 63) // 64), np.int64)
    num_nodes = array_at(num_nodes_at, batch_size, np.int32)
    root = array_at(root_at, batch_size, np.int64)
    token_ids = array_at(token_ids_at, (batch_size, depth, k), np.int64)
    values = array_at(values_at, (batch_size, depth, wide, k), np.float32)
    for b in range(batch_size):
        if by_pairs:
            for token in token_ids[b].flat:
                if not 0 <= token < vocabulary:
                    return False
            if not 0 <= root[b] < vocabulary:
                return False
        num_nodes[b] = sizes[b]
        _grow(
            root[b],
            token_ids[b],
            values[b],
            by_pairs,
            table_at,
            table,
            depth_vectors,
            scale,
            normalized,
            vector,
            sizes[b],
            max_depths[b],
            tokens[b],
            links[0, b],
            links[1, b],
            links[2, b],
            links[3, b],
            scores[b],
            ancestors[b],
        )
    return True


@inlined
def _grow(
    root: int,
    token_ids: Array,
    values: Array,
    by_pairs: bool,
    table_at: int,
    table: Array,
    depth_vectors: Array,
    scale: float,
    normalized: bool,
    vector: Array,
    size: int,
    max_depth: int,
    tokens: Array,
    parents: Array,
    depths: Array,
    first_child: Array,
    next_sibling: Array,
    scores: Array,
    ancestors: Array,
) -> None:
    """Grow one tree of ``size`` nodes, of which the root is one.

    Edge scores are ``values`` [D, P, K], or, ``by_pairs``, what ``fill_row`` makes of the
    marginals ``values`` [D, 1, K] for each parent that is reached.
    """
    tokens[:] = 0
    parents[:] = -1
    depths[:] = 0
    first_child[:] = -1
    next_sibling[:] = -1
    scores[:] = 0.0
    ancestors[:] = 0
    tokens[0] = root
    ancestors[0, 0] = 1
    depth, wide, k = values.shape
    # One heap entry is a key and (parent << 32 | rank); one pop adds at most two for one.
    keys = np.empty(size + 1, np.float64)
    entries = np.empty(size + 1, np.int64)
    ranks = np.empty(size, np.int32)
    candidates = np.zeros(size, np.int32)
    last_child = np.empty(size, np.int32)
    # Rows of `edges` and `order` are dealt out to the (depth, parent) pairs as they are reached.
    conditional = by_pairs or wide > 1
    places = np.full((depth, k if conditional else 1), -1, np.int32)
    edges = np.empty((min(size, places.size), k), np.float32)
    order = np.empty(edges.shape, np.int32)
    used_rows = 0
    fetched = 0
    heap_size = 0
    node = 0
    while True:
        level = depths[node]
        if level < max_depth and node + 1 < size:
            own = candidates[node] if conditional else 0
            place = places[level, own]
            if place < 0:
                place = places[level, own] = used_rows
                used_rows += 1
                if by_pairs:
                    while fetched < min(level + FETCH_AHEAD, max_depth):
                        fetch_children(table_at, len(vector), token_ids[fetched])
                        fetched += 1
                    fill_row(
                        table,
                        depth_vectors[level],
                        scale,
                        normalized,
                        tokens[node],
                        token_ids[level],
                        values[level, 0],
                        vector,
                        edges[place],
                    )
                else:
                    edges[place] = values[level, own]
                _start_order(edges[place], order[place])
            best = _ranked(edges[place], order[place], 0)
            key_in = scores[node] + edges[place, best]
            entry_in = np.int64(node) << 32
            push(keys, entries, heap_size, key_in, entry_in, parents, ranks, depths)
            heap_size += 1
        node += 1
        if node >= size:
            return
        key = keys[0]
        parent = entries[0] >> 32
        rank = entries[0] & 0xFFFFFFFF
        level = depths[parent]
        place = places[level, candidates[parent] if conditional else 0]
        chosen = order[place, rank]
        if rank + 1 < k:
            following = _ranked(edges[place], order[place], rank + 1)
            key_in = scores[parent] + edges[place, following]
            entry_in = entries[0] + 1
        else:
            heap_size -= 1
            key_in = keys[heap_size]
            entry_in = entries[heap_size]
        replace_top(keys, entries, heap_size, key_in, entry_in, parents, ranks, depths)
        tokens[node] = token_ids[level, chosen]
        parents[node] = parent
        depths[node] = level + 1
        scores[node] = key
        for word in range(parent // 64 + 1):
            ancestors[node, word] = ancestors[parent, word]
        ancestors[node, node // 64] |= np.int64(1) << np.int64(node % 64)
        if rank == 0:
            first_child[parent] = node
        else:
            next_sibling[last_child[parent]] = node
        last_child[parent] = node
        ranks[node] = rank
        candidates[node] = chosen


@inlined
def _start_order(row: Array, order: Array) -> None:
    """Prepare ``order``: the identity if ``row`` falls already, else empty (-1)."""
    for k in range(1, len(row)):
        if row[k] > row[k - 1]:
            order[:] = -1
            return
    for k in range(len(row)):
        order[k] = k


@inlined
def _ranked(row: Array, order: Array, rank: int) -> int:
    """Candidate number ``rank`` of ``row``; the ranks before it are known in ``order``.

    Selected when asked for, not sorted: most rows are asked for one or two of their K.
    """
    if order[rank] >= 0:
        return order[rank]
    best = -1
    if rank == 0:
        best = 0
        for k in range(1, len(row)):
            if row[k] > row[best]:
                best = k
    else:
        last = order[rank - 1]
        bound = row[last]
        for k in range(len(row)):
            follows = row[k] < bound or (row[k] == bound and k > last)
            if follows and (best < 0 or row[k] > row[best]):
                best = k
    order[rank] = best
    return best
