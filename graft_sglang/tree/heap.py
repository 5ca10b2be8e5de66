"""A max-heap of tree paths for Numba kernels; equal scores pop in the order of their rank paths.

An entry is a key (the path's score) and ``parent << 32 | rank``: the rank-th child of a node.
"""

from __future__ import annotations

import numpy as np

from graft_sglang.tree.jit import inlined

Array = np.ndarray


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
def push(
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
def replace_top(
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
