"""Rows of ``TokenPairScores``, one at a time, inside a Numba kernel."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from graft_sglang.token_pairs import TokenPairScores
from graft_sglang.tree.jit import inlined, prefetch, reassociating

Array = np.ndarray


class PairArguments(NamedTuple):
    """``TokenPairScores`` as a kernel takes them; the tensors are kept alive by the scores."""

    rows_at: int = 0
    """0: the edges are given as values instead."""
    vocabulary: int = 0
    width: int = 0
    depth_vectors_at: int = 0
    known_depths: int = 0
    scale: float = 0.0
    normalized: bool = False


NO_PAIRS = PairArguments()


def pair_arguments(scores: TokenPairScores) -> PairArguments:
    """Addresses and sizes.

    Raises:
        ValueError: tables of another type or layout than the kernel reads.
    """
    rows, depth_vectors = scores.rows, scores.depth_vectors
    depth = scores.candidates.token_ids.shape[1]
    if len(depth_vectors) < depth or rows.shape[1] != 2 * depth_vectors.shape[1]:
        raise ValueError(
            f"token pairs need vectors [V, 2 m] and [{depth} or more, m], not {list(rows.shape)} "
            f"and {list(depth_vectors.shape)}"
        )
    return PairArguments(
        rows.data_ptr(),
        rows.shape[0],
        depth_vectors.shape[1],
        depth_vectors.data_ptr(),
        len(depth_vectors),
        scores.scale,
        scores.normalized,
    )


@inlined
def fill_row(
    table: Array,
    depth_vector: Array,
    scale: float,
    normalized: bool,
    parent: int,
    children: Array,
    log_probs: Array,
    vector: Array,
    row: Array,
) -> None:
    """Scores of all children of a parent.

    Args:
        table: float32 [V, 2, m]
        depth_vector: float32 [m]
        parent: token id.
        children: int64 [K], token ids.
        log_probs: float32 [K]
        vector: float32 [m], scratch.
        row: float32 [K], written.
    """
    for i in range(len(vector)):
        vector[i] = (table[parent, 0, i] + depth_vector[i]) * np.float32(scale)
    total = 0.0
    for c in range(len(row)):
        row[c] = _dot(vector, table[children[c], 1])
        total += row[c]
    shift = total / len(row)
    if normalized:
        for c in range(len(row)):
            row[c] += log_probs[c]
        shift = _log_sum_exp(row) - _log_sum_exp(log_probs)
        for c in range(len(row)):
            row[c] -= shift
        return
    for c in range(len(row)):
        row[c] = log_probs[c] + np.float32(row[c] - shift)


CACHE_LINE = 64
"""Bytes"""


@inlined
def fetch_children(table_at: int, width: int, children: Array) -> None:
    """Have the children's vectors loaded: each waits for memory alone otherwise.

    Args:
        table_at: address of the table, float32 [V, 2, width].
        children: int64 [K], token ids.
    """
    size = 4 * width
    for c in range(len(children)):
        start = table_at + (2 * children[c] + 1) * size
        for line in range(0, size, CACHE_LINE):
            prefetch(start + line)


@reassociating
def _dot(a: Array, b: Array) -> float:
    total = np.float32(0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total  # type: ignore[return-value]


@inlined
def _log_sum_exp(values: Array) -> float:
    top = values[0]
    for value in values:
        top = max(top, value)
    total = 0.0
    for value in values:
        total += math.exp(value - top)
    return top + math.log(total)
