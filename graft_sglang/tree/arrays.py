"""From a builder's arguments to what a kernel takes, and from grown arrays to a ``DraftTree``."""

from __future__ import annotations

from collections import OrderedDict
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
from graft_sglang.tree.jit import array_at, jit

_CPU = torch.device("cpu")


class BuildInputs(NamedTuple):
    """A builder's arguments, checked; tensors contiguous and on the CPU, as the contracts say."""

    root: torch.Tensor
    token_ids: torch.Tensor
    values: torch.Tensor
    extent: tuple[int, int, int]
    """D, P, K"""
    max_depths: np.ndarray
    """int64 [bs], at most ``D``."""
    sizes: np.ndarray
    """int64 [bs]: nodes of each tree, the root included."""
    width: int
    """The most nodes of a tree."""


class TreeArrays(NamedTuple):
    """Memory of a batch of trees: as a ``DraftTree``, and as addresses for a kernel.

    A builder writes every element.
    """

    tree: DraftTree
    addresses: tuple[int, int, int, int, int]
    """Of the token ids, the links (int32 [4, bs, N]: parents, depths, first_child, next_sibling),
    the scores, the ancestors and the numbers of nodes."""


class TreeMemory:
    """Hands out arrays for trees: new ones, or the same again for every batch of a size.

    Making eight tensors takes longer than growing a tree of 128 nodes, so a server recycles. Sizes
    not used lately are forgotten.
    """

    def __init__(self, recycle: bool) -> None:
        self._recycle = recycle
        self._sizes: OrderedDict[tuple[int, int], TreeArrays] = OrderedDict()

    def arrays(self, batch_size: int, width: int) -> TreeArrays:
        """Arrays for a batch whose widest tree has ``width`` nodes."""
        if not self._recycle:
            return allocate(batch_size, width)
        known = self._sizes.get((batch_size, width))
        if known is None:
            if len(self._sizes) >= _SIZES_KEPT:
                self._sizes.popitem(last=False)
            known = self._sizes[batch_size, width] = allocate(batch_size, width)
        else:
            self._sizes.move_to_end((batch_size, width))
        return known


_SIZES_KEPT = 64


def allocate(batch_size: int, width: int) -> TreeArrays:
    """New arrays, uninitialised, on the CPU."""
    token_ids = torch.empty(batch_size, width, dtype=torch.int64)
    links = torch.empty(4, batch_size, width, dtype=torch.int32)
    scores = torch.empty(batch_size, width, dtype=torch.float64)
    ancestors = torch.empty(batch_size, width, (width + 63) // 64, dtype=torch.int64)
    num_nodes = torch.empty(batch_size, dtype=torch.int32)
    parents, depths, first_child, next_sibling = links.unbind()
    owners = (token_ids, links, scores, ancestors, num_nodes)
    return TreeArrays(
        DraftTree(
            token_ids, parents, depths, scores, first_child, next_sibling, ancestors, num_nodes
        ),
        tuple(tensor.data_ptr() for tensor in owners),  # type: ignore[arg-type]
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
    batch_size, depth, wide, k = _check_shapes(candidates, scores, budgets, max_depths)
    values = on_host(scores.values, torch.float32)
    wanted = on_host(budgets, torch.int64)
    caps = None if max_depths is None else on_host(max_depths, torch.int64)
    depths, sizes = np.empty(batch_size, np.int64), np.empty(batch_size, np.int64)
    outcome = _check(
        values.data_ptr(),
        depth,
        wide,
        k,
        wanted.data_ptr(),
        0 if caps is None else caps.data_ptr(),
        branching,
        depths,
        sizes,
    )
    if outcome == _BAD_SCORE:
        raise ValueError("edge scores must not be NaN or +inf")
    if outcome == _BAD_BUDGET:
        raise ValueError(f"budgets must be from 0 to {MAX_BUDGET}, not {wanted.tolist()}")
    if caps is not None and outcome == _BAD_DEPTH:
        raise ValueError(f"max_depths must not be negative, not {caps.tolist()}")
    return BuildInputs(
        on_host(candidates.root, torch.int64),
        on_host(candidates.token_ids, torch.int64),
        values,
        (depth, wide, k),
        depths,
        sizes,
        outcome,
    )


def tree_sizes(
    candidates: DraftCandidates,
    scores: EdgeScores,
    budgets: torch.Tensor,
    max_depths: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes of each best-first tree, root included, and its deepest level: int64 [bs] on the CPU.

    As ``check_inputs`` sizes them, but without a look at the scores, which may be on a device.

    Raises:
        ValueError: shapes that don't fit together, budgets or depths out of range.
    """
    batch_size, depth, _, k = _check_shapes(candidates, scores, budgets, max_depths)
    levels = torch.full((batch_size,), depth)
    if max_depths is not None:
        levels = torch.minimum(levels, on_host(max_depths, torch.int64))
    wanted = on_host(budgets, torch.int64)
    if batch_size and not 0 <= int(wanted.min()) <= int(wanted.max()) <= MAX_BUDGET:
        raise ValueError(f"budgets must be from 0 to {MAX_BUDGET}, not {wanted.tolist()}")
    if batch_size and int(levels.min()) < 0:
        raise ValueError(f"max_depths must not be negative, not {levels.tolist()}")
    sizes = []
    for budget, level in zip(wanted.tolist(), levels.tolist(), strict=True):
        paths = sum(k**d for d in range(1, level + 1))
        sizes.append(min(budget, paths) + 1)
    return torch.tensor(sizes, dtype=torch.int64), levels


def _check_shapes(
    candidates: DraftCandidates,
    scores: EdgeScores,
    budgets: torch.Tensor,
    max_depths: torch.Tensor | None,
) -> tuple[int, int, int, int]:
    """bs, D, P, K"""
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
    return batch_size, depth, given[2], k


def on_host(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor, contiguous and on the CPU, without an operation where none is needed."""
    if tensor.dtype is not dtype or not tensor.is_cpu:
        tensor = tensor.to(_CPU, dtype)
    return tensor.contiguous()


_BAD_SCORE, _BAD_BUDGET, _BAD_DEPTH = -1, -2, -3


@jit
def _check(
    values_at: int,
    depth: int,
    wide: int,
    k: int,
    budgets_at: int,
    caps_at: int,
    branching: int,
    max_depths: np.ndarray,
    sizes: np.ndarray,
) -> int:
    """Fill ``max_depths`` from the caps (none: address 0) and ``sizes``; fault or width.

    At depth 1 only the scores under the root, row 0, are ever read. A tree falls short of its
    budget only where its ``branching + branching^2 + ... + branching^max_depth`` paths run out.
    """
    values = array_at(values_at, (len(sizes), depth, wide * k), np.float32)
    budgets = array_at(budgets_at, len(sizes), np.int64)
    caps = array_at(caps_at, len(sizes), np.int64)
    illegal = 0
    width = 1
    for b in range(len(sizes)):
        for d in range(depth):
            for edge in range(wide * k if d > 0 else k):
                illegal += not values[b, d, edge] < np.inf
        if not 0 <= budgets[b] <= MAX_BUDGET:
            return _BAD_BUDGET
        max_depths[b] = depth
        if caps_at != 0:
            if caps[b] < 0:
                return _BAD_DEPTH
            max_depths[b] = min(depth, caps[b])
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
