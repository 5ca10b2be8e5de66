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

from graft_sglang.contracts import DraftCandidates, DraftTree, EdgeScores, TreeBuilder
from graft_sglang.tree.arrays import allocate, check_inputs
from graft_sglang.tree.jit import array_at, inlined, jit

Array = np.ndarray


class BestFirstTreeBuilder(TreeBuilder):
    """Grows each tree in order of falling path score until its budget is used up."""

    def build(
        self,
        candidates: DraftCandidates,
        scores: EdgeScores,
        budgets: torch.Tensor,
        max_depths: torch.Tensor | None = None,
    ) -> DraftTree:
        branching = candidates.token_ids.shape[-1]
        inputs = check_inputs(candidates, scores, budgets, max_depths, branching)
        arrays = allocate(len(inputs.sizes), inputs.width)
        _grow_batch(
            inputs.root.data_ptr(),
            inputs.token_ids.data_ptr(),
            inputs.values.data_ptr(),
            *inputs.extent,
            inputs.sizes,
            inputs.max_depths,
            *arrays,
        )
        return arrays.as_tree()


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
    tokens: Array,
    links: Array,
    scores: Array,
    ancestors: Array,
    num_nodes: Array,
) -> None:
    batch_size = len(sizes)
    root = array_at(root_at, batch_size, np.int64)
    token_ids = array_at(token_ids_at, (batch_size, depth, k), np.int64)
    values = array_at(values_at, (batch_size, depth, wide, k), np.float32)
    for b in range(batch_size):
        num_nodes[b] = sizes[b]
        _grow(
            root[b],
            token_ids[b],
            values[b],
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


@inlined
def _grow(
    root: int,
    token_ids: Array,
    values: Array,
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
    """Grow one tree of ``size`` nodes, of which the root is one."""
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
    # Rows of `order` are dealt out to the (depth, parent) rows of `values` as they are reached.
    order = np.empty((min(size, depth * wide), k), np.int32)
    order_rows = np.full((depth, wide), -1, np.int32)
    used_rows = 0
    heap_size = 0
    node = 0
    while True:
        level = depths[node]
        if level < max_depth and node + 1 < size:
            row = candidates[node] if wide > 1 else 0
            if order_rows[level, row] < 0:
                order_rows[level, row] = used_rows
                _start_order(values[level, row], order[used_rows])
                used_rows += 1
            best = _ranked(values[level, row], order[order_rows[level, row]], 0)
            key_in = scores[node] + values[level, row, best]
            entry_in = np.int64(node) << 32
            _push(keys, entries, heap_size, key_in, entry_in, parents, ranks, depths)
            heap_size += 1
        node += 1
        if node >= size:
            return
        key = keys[0]
        parent = entries[0] >> 32
        rank = entries[0] & 0xFFFFFFFF
        level = depths[parent]
        row = candidates[parent] if wide > 1 else 0
        order_row = order[order_rows[level, row]]
        chosen = order_row[rank]
        if rank + 1 < k:
            following = _ranked(values[level, row], order_row, rank + 1)
            key_in = scores[parent] + values[level, row, following]
            entry_in = entries[0] + 1
        else:
            heap_size -= 1
            key_in = keys[heap_size]
            entry_in = entries[heap_size]
        _replace_top(keys, entries, heap_size, key_in, entry_in, parents, ranks, depths)
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


@inlined
def _path_before(a: int, b: int, parents: Array, ranks: Array, depths: Array) -> bool:
    """Whether entry ``a``'s rank path is the smaller one.

    No entry of the heap extends another (it would have to pop first), so the paths part.
    """
    parent_a, rank_a = a >> 32, a & 0xFFFFFFFF
    parent_b, rank_b = b >> 32, b & 0xFFFFFFFF
    while depths[parent_a] > depths[parent_b]:
        rank_a = ranks[parent_a]
        parent_a = parents[parent_a]
    while depths[parent_b] > depths[parent_a]:
        rank_b = ranks[parent_b]
        parent_b = parents[parent_b]
    while parent_a != parent_b:
        rank_a = ranks[parent_a]
        rank_b = ranks[parent_b]
        parent_a = parents[parent_a]
        parent_b = parents[parent_b]
    return rank_a < rank_b


@inlined
def _push(
    keys: Array,
    entries: Array,
    size: int,
    key: float,
    entry: int,
    parents: Array,
    ranks: Array,
    depths: Array,
) -> None:
    """Insert into a heap of ``size`` entries."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if keys[above] > key or (
            keys[above] == key and _path_before(entries[above], entry, parents, ranks, depths)
        ):
            break
        keys[place] = keys[above]
        entries[place] = entries[above]
        place = above
    keys[place] = key
    entries[place] = entry


@inlined
def _replace_top(
    keys: Array,
    entries: Array,
    size: int,
    key: float,
    entry: int,
    parents: Array,
    ranks: Array,
    depths: Array,
) -> None:
    """Put an entry in the place of the top, in a heap of ``size`` entries after that.

    With ``size`` 0 (the last entry was popped) what is written is never read.
    """
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        other = below + 1
        if other < size and (
            keys[other] > keys[below]
            or (
                keys[other] == keys[below]
                and _path_before(entries[other], entries[below], parents, ranks, depths)
            )
        ):
            below = other
        if key > keys[below] or (
            key == keys[below] and _path_before(entry, entries[below], parents, ranks, depths)
        ):
            break
        keys[place] = keys[below]
        entries[place] = entries[below]
        place = below
    keys[place] = key
    entries[place] = entry
