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
    MAX_DEPTH,
    DraftCandidates,
    DraftTree,
    EdgeScores,
    TreeBuilder,
)
from graft_sglang.tree.arrays import allocate, check_inputs, finish
from graft_sglang.tree.jit import jit


class BestFirstTreeBuilder(TreeBuilder):
    """Grows each tree in order of falling path score until its budget is used up."""

    def build(
        self,
        candidates: DraftCandidates,
        scores: EdgeScores,
        budgets: torch.Tensor,
        max_depths: torch.Tensor | None = None,
    ) -> DraftTree:
        inputs = check_inputs(candidates, scores, budgets, max_depths)
        batch_size = len(inputs.budgets)
        arrays = allocate(batch_size, int(inputs.budgets.max(initial=0)) + 1)
        if _grow_batch(*inputs, *arrays):
            raise ValueError("edge scores must not be NaN or +inf")
        return finish(arrays)


@jit
def _next_in_order(row, last):
    """Index of the candidate that follows ``last`` in order (score falling, then index), or -1.

    ``last`` = -1 asks for the first. Returns -2 on NaN or +inf.
    """
    best = -1
    for k in range(row.shape[0]):
        score = row[k]
        if not score < np.inf:
            return -2
        if last >= 0 and not (score < row[last] or (score == row[last] and k > last)):
            continue
        if best < 0 or score > row[best]:
            best = k
    return best


@jit
def _path(parents, ranks, node, rank, out):
    """Write the rank path of child ``rank`` of ``node``; returns its length."""
    length = 1
    climb = node
    while climb > 0:
        length += 1
        climb = parents[climb]
    out[length - 1] = rank
    place = length - 2
    climb = node
    while climb > 0:
        out[place] = ranks[climb]
        place -= 1
        climb = parents[climb]
    return length


@jit
def _before(a, b, keys, heap_parent, heap_rank, parents, ranks, left, right):
    """Whether entry ``a`` pops before entry ``b``."""
    if keys[a] != keys[b]:
        return keys[a] > keys[b]
    length_a = _path(parents, ranks, heap_parent[a], heap_rank[a], left)
    length_b = _path(parents, ranks, heap_parent[b], heap_rank[b], right)
    for place in range(min(length_a, length_b)):
        if left[place] != right[place]:
            return left[place] < right[place]
    return length_a < length_b


@jit
def _grow(
    root,
    token_ids,
    values,
    budget,
    max_depth,
    out_tokens,
    out_parents,
    out_depths,
    out_scores,
    out_child,
    out_sibling,
    out_ancestors,
):
    """Grow one tree; returns its number of nodes, or -1 on NaN or +inf edges."""
    depth, wide, k = values.shape
    out_tokens[0] = root
    out_ancestors[0, 0] = 1
    if budget == 0 or max_depth == 0:
        return 1
    parent_aware = wide > 1
    capacity = budget + 2
    # Entries never move; the heap holds their indices. A slot is freed by its pop.
    keys = np.empty(capacity, np.float64)
    entry_parent = np.empty(capacity, np.int32)
    entry_rank = np.empty(capacity, np.int32)
    heap = np.empty(capacity, np.int32)
    ranks = np.empty(budget + 1, np.int32)
    candidate = np.zeros(budget + 1, np.int32)
    last_child = np.full(budget + 1, -1, np.int32)
    order = np.full((depth, wide, k), -1, np.int32)
    filled = np.zeros((depth, wide), np.int32)
    left = np.empty(MAX_DEPTH + 1, np.int32)
    right = np.empty(MAX_DEPTH + 1, np.int32)
    size = 0
    free = -1
    used = 0
    nodes = 1
    push_parent, push_rank = 0, 0
    sibling_parent, sibling_rank = -1, -1
    while True:
        # Offer what the last pop opened: its next sibling, then its first child.
        for offer in range(2):
            parent = sibling_parent if offer == 0 else push_parent
            rank = sibling_rank if offer == 0 else push_rank
            if parent < 0:
                continue
            level = out_depths[parent]
            if level >= max_depth or rank >= k:
                continue
            row = candidate[parent] if parent_aware else 0
            if filled[level, row] == rank:
                last = order[level, row, rank - 1] if rank > 0 else -1
                found = _next_in_order(values[level, row], last)
                if found < 0:
                    return -1
                order[level, row, rank] = found
                filled[level, row] = rank + 1
            if free >= 0:
                slot = free
                free = -1
            else:
                slot = used
                used += 1
            keys[slot] = out_scores[parent] + values[level, row, order[level, row, rank]]
            entry_parent[slot] = parent
            entry_rank[slot] = rank
            place = size
            size += 1
            while place > 0:
                above = (place - 1) // 2
                if not _before(
                    slot, heap[above], keys, entry_parent, entry_rank, out_parents, ranks,
                    left, right,
                ):  # fmt: skip
                    break
                heap[place] = heap[above]
                place = above
            heap[place] = slot
        if size == 0 or nodes > budget:
            return nodes
        top = heap[0]
        size -= 1
        if size > 0:
            moved = heap[size]
            place = 0
            while True:
                below = 2 * place + 1
                if below >= size:
                    break
                if below + 1 < size and _before(
                    heap[below + 1], heap[below], keys, entry_parent, entry_rank, out_parents,
                    ranks, left, right,
                ):  # fmt: skip
                    below += 1
                if not _before(
                    heap[below], moved, keys, entry_parent, entry_rank, out_parents, ranks,
                    left, right,
                ):  # fmt: skip
                    break
                heap[place] = heap[below]
                place = below
            heap[place] = moved
        free = top
        parent = entry_parent[top]
        rank = entry_rank[top]
        level = out_depths[parent]
        row = candidate[parent] if parent_aware else 0
        chosen = order[level, row, rank]
        out_tokens[nodes] = token_ids[level, chosen]
        out_parents[nodes] = parent
        out_depths[nodes] = level + 1
        out_scores[nodes] = keys[top]
        for word in range(nodes // 64 + 1):
            out_ancestors[nodes, word] = out_ancestors[parent, word]
        out_ancestors[nodes, nodes // 64] |= np.int64(1) << np.int64(nodes % 64)
        if last_child[parent] < 0:
            out_child[parent] = nodes
        else:
            out_sibling[last_child[parent]] = nodes
        last_child[parent] = nodes
        ranks[nodes] = rank
        candidate[nodes] = chosen
        sibling_parent, sibling_rank = parent, rank + 1
        push_parent, push_rank = nodes, 0
        nodes += 1
        if nodes > budget:
            return nodes


@jit
def _grow_batch(
    root,
    token_ids,
    values,
    budgets,
    max_depths,
    out_tokens,
    out_parents,
    out_depths,
    out_scores,
    out_child,
    out_sibling,
    out_ancestors,
    out_nodes,
):
    """Grow every tree of the batch; returns whether an edge was NaN or +inf."""
    for b in range(root.shape[0]):
        nodes = _grow(
            root[b],
            token_ids[b],
            values[b],
            budgets[b],
            max_depths[b],
            out_tokens[b],
            out_parents[b],
            out_depths[b],
            out_scores[b],
            out_child[b],
            out_sibling[b],
            out_ancestors[b],
        )
        if nodes < 0:
            return True
        out_nodes[b] = nodes
    return False
