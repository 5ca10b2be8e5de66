"""The arrays of a ``DraftTree`` while it grows, and the checks shared by all builders."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from graft_sglang.contracts import (
    MAX_BUDGET,
    MAX_DEPTH,
    DraftCandidates,
    DraftTree,
    EdgeScores,
)


class TreeArrays(NamedTuple):
    """Numpy arrays laid out as ``DraftTree`` says, already holding the padding values."""

    token_ids: np.ndarray
    parents: np.ndarray
    depths: np.ndarray
    scores: np.ndarray
    first_child: np.ndarray
    next_sibling: np.ndarray
    ancestors: np.ndarray
    num_nodes: np.ndarray


class BuildInputs(NamedTuple):
    """A builder's arguments as numpy arrays, checked."""

    root: np.ndarray
    token_ids: np.ndarray
    values: np.ndarray
    budgets: np.ndarray
    max_depths: np.ndarray


def allocate(batch_size: int, width: int) -> TreeArrays:
    """Arrays for trees of at most ``width`` nodes."""
    shape = (batch_size, width)
    return TreeArrays(
        token_ids=np.zeros(shape, np.int64),
        parents=np.full(shape, -1, np.int32),
        depths=np.zeros(shape, np.int32),
        scores=np.zeros(shape, np.float64),
        first_child=np.full(shape, -1, np.int32),
        next_sibling=np.full(shape, -1, np.int32),
        ancestors=np.zeros((batch_size, width, (width + 63) // 64), np.int64),
        num_nodes=np.zeros(batch_size, np.int32),
    )


def finish(arrays: TreeArrays) -> DraftTree:
    """Cut the padding beyond the widest tree and hand the arrays over without copying."""
    width = int(arrays.num_nodes.max()) if len(arrays.num_nodes) else 1
    words = (width + 63) // 64
    cut = [torch.from_numpy(array[:, :width]) for array in arrays[:6]]
    ancestors = torch.from_numpy(arrays.ancestors[:, :width, :words])
    return DraftTree(*cut, ancestors, torch.from_numpy(arrays.num_nodes))


def check_inputs(
    candidates: DraftCandidates,
    scores: EdgeScores,
    budgets: torch.Tensor,
    max_depths: torch.Tensor | None,
) -> BuildInputs:
    """Validate shapes and ranges and move everything to the host.

    Raises:
        ValueError: shapes that don't fit together, budgets or depths out of range.
    """
    if candidates.token_ids.ndim != 3 or 0 in candidates.token_ids.shape[1:]:
        raise ValueError(
            f"token_ids must be [bs, D, K] with D, K > 0, not {list(candidates.token_ids.shape)}"
        )
    batch_size, depth, k = candidates.token_ids.shape
    if depth > MAX_DEPTH:
        raise ValueError(f"trees are at most {MAX_DEPTH} deep, not {depth}")
    values = scores.values
    if values.ndim != 4 or values.shape[2] not in (1, k) or values.shape[:2] != (batch_size, depth):
        raise ValueError(
            f"edge scores must be [{batch_size}, {depth}, 1 or {k}, {k}], not {list(values.shape)}"
        )
    if values.shape[3] != k:
        raise ValueError(f"edge scores must cover {k} candidates, not {values.shape[3]}")
    limits = budgets.numpy().astype(np.int64, copy=False)
    if limits.shape != (batch_size,):
        raise ValueError(f"budgets must be [{batch_size}], not {list(budgets.shape)}")
    if batch_size and not 0 <= limits.min() <= limits.max() <= MAX_BUDGET:
        raise ValueError(f"budgets must be from 0 to {MAX_BUDGET}, not {limits.tolist()}")
    if max_depths is None:
        depths = np.full(batch_size, depth, np.int64)
    else:
        depths = np.minimum(max_depths.numpy().astype(np.int64, copy=False), depth)
        if depths.shape != (batch_size,) or (batch_size and depths.min() < 0):
            raise ValueError(f"max_depths must be [{batch_size}] and not negative")
    return BuildInputs(
        root=candidates.root.cpu().numpy(),
        token_ids=np.ascontiguousarray(candidates.token_ids.cpu().numpy()),
        values=np.ascontiguousarray(values.detach().to("cpu", torch.float32).numpy()),
        budgets=limits,
        max_depths=depths,
    )
