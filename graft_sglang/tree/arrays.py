"""From a builder's arguments to checked numpy arrays, and from grown arrays to a ``DraftTree``."""

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
from graft_sglang.tree.jit import jit

_CPU = torch.device("cpu")


class BuildInputs(NamedTuple):
    """A builder's arguments, checked: C-contiguous numpy arrays of the contracts' shapes."""

    root: np.ndarray
    token_ids: np.ndarray
    values: np.ndarray
    max_depths: np.ndarray
    """int64 [bs], at most ``D``."""
    sizes: np.ndarray
    """int64 [bs]: nodes of each tree, the root included."""
    width: int
    """The most nodes of a tree."""


class TreeArrays(NamedTuple):
    """Uninitialised arrays laid out as ``DraftTree`` says; a builder writes every element."""

    token_ids: np.ndarray
    links: np.ndarray
    """int32 [4, bs, N]: parents, depths, first_child, next_sibling."""
    scores: np.ndarray
    ancestors: np.ndarray
    num_nodes: np.ndarray

    def as_tree(self) -> DraftTree:
        """Tensors over the same memory."""
        parents, depths, first_child, next_sibling = torch.from_numpy(self.links).unbind()
        return DraftTree(
            token_ids=torch.from_numpy(self.token_ids),
            parents=parents,
            depths=depths,
            scores=torch.from_numpy(self.scores),
            first_child=first_child,
            next_sibling=next_sibling,
            ancestors=torch.from_numpy(self.ancestors),
            num_nodes=torch.from_numpy(self.num_nodes),
        )


def allocate(batch_size: int, width: int) -> TreeArrays:
    """Arrays for a batch whose widest tree has ``width`` nodes."""
    return TreeArrays(
        token_ids=np.empty((batch_size, width), np.int64),
        links=np.empty((4, batch_size, width), np.int32),
        scores=np.empty((batch_size, width), np.float64),
        ancestors=np.empty((batch_size, width, (width + 63) // 64), np.int64),
        num_nodes=np.empty(batch_size, np.int32),
    )


def check_inputs(
    candidates: DraftCandidates,
    scores: EdgeScores,
    budgets: torch.Tensor,
    max_depths: torch.Tensor | None,
    branching: int,
) -> BuildInputs:
    """Validate shapes and values, bring everything to the host and size the trees.

    ``branching`` is the most children a node of the builder's trees may have.

    Raises:
        ValueError: shapes that don't fit together, budgets or depths out of range, an edge score
            that is NaN or +inf.
    """
    shape = candidates.token_ids.shape
    if len(shape) != 3 or 0 in shape[1:] or shape[1] > MAX_DEPTH:
        raise ValueError(
            f"token_ids must be [bs, D, K] with D from 1 to {MAX_DEPTH} and K > 0, "
            f"not {list(shape)}"
        )
    batch_size, depth, k = shape
    if candidates.root.shape != (batch_size,):
        raise ValueError(f"root must be [{batch_size}], not {list(candidates.root.shape)}")
    given = scores.values.shape
    if given not in ((batch_size, depth, 1, k), (batch_size, depth, k, k)):
        raise ValueError(
            f"edge scores must be [{batch_size}, {depth}, 1 or {k}, {k}], not {list(given)}"
        )
    if budgets.shape != (batch_size,):
        raise ValueError(f"budgets must be [{batch_size}], not {list(budgets.shape)}")
    if max_depths is not None and max_depths.shape != (batch_size,):
        raise ValueError(f"max_depths must be [{batch_size}], not {list(max_depths.shape)}")
    values = as_host_array(scores.values, torch.float32)
    wanted = as_host_array(budgets, torch.int64)
    caps = _NO_CAPS if max_depths is None else as_host_array(max_depths, torch.int64)
    depths, sizes = np.empty(batch_size, np.int64), np.empty(batch_size, np.int64)
    outcome = _check(values, wanted, caps, branching, depths, sizes)
    if outcome == _BAD_SCORE:
        raise ValueError("edge scores must not be NaN or +inf")
    if outcome == _BAD_BUDGET:
        raise ValueError(f"budgets must be from 0 to {MAX_BUDGET}, not {wanted.tolist()}")
    if outcome == _BAD_DEPTH:
        raise ValueError(f"max_depths must not be negative, not {caps.tolist()}")
    return BuildInputs(
        root=as_host_array(candidates.root, torch.int64),
        token_ids=as_host_array(candidates.token_ids, torch.int64),
        values=values,
        max_depths=depths,
        sizes=sizes,
        width=outcome,
    )


def as_host_array(tensor: torch.Tensor, dtype: torch.dtype) -> np.ndarray:
    """The tensor as a C-contiguous numpy array, without an operation where none is needed."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype is not dtype or not tensor.is_cpu:
        tensor = tensor.to(_CPU, dtype)
    return tensor.contiguous().numpy()


_NO_CAPS = np.empty(0, np.int64)
_BAD_SCORE, _BAD_BUDGET, _BAD_DEPTH = -1, -2, -3


@jit
def _check(
    values: np.ndarray,
    budgets: np.ndarray,
    caps: np.ndarray,
    branching: int,
    max_depths: np.ndarray,
    sizes: np.ndarray,
) -> int:
    """Fill ``max_depths`` from ``caps`` (empty: none) and ``sizes``; returns a fault or the width.

    At depth 1 only the scores under the root, row 0, are ever read. A tree falls short of its
    budget only where its ``branching + branching^2 + ... + branching^max_depth`` paths run out.
    """
    illegal = 0
    width = 1
    for b in range(len(sizes)):
        for d in range(values.shape[1]):
            for p in range(values.shape[2] if d > 0 else 1):
                for k in range(values.shape[3]):
                    illegal += not values[b, d, p, k] < np.inf
        if not 0 <= budgets[b] <= MAX_BUDGET:
            return _BAD_BUDGET
        max_depths[b] = values.shape[1]
        if len(caps):
            if caps[b] < 0:
                return _BAD_DEPTH
            max_depths[b] = min(max_depths[b], caps[b])
        paths = 0
        level_paths = 1
        for _ in range(max_depths[b]):
            level_paths *= branching
            paths += level_paths
            if paths >= budgets[b]:
                break
        sizes[b] = min(budgets[b], paths) + 1
        width = max(width, sizes[b])
    return _BAD_SCORE if illegal else width
