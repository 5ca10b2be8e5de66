"""The walk that decides what is committed: follow the target's own tokens down the tree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from graft_sglang.contracts import DraftTree
from graft_sglang.tree.arrays import on_host
from graft_sglang.tree.jit import array_at, jit


@dataclass(frozen=True, slots=True)
class AcceptedPaths:
    """What one round commits; ``P`` is the depth of the batch's deepest tree plus one."""

    nodes: torch.Tensor
    """int64 [bs, P]: node of each depth on the accepted path, the root first, -1 beyond it."""
    tokens: torch.Tensor
    """int64 [bs, P]: the ``lengths + 1`` committed tokens (accepted drafts, then the bonus token),
    0 beyond them: 0 is a token too, so cut by ``committed``, never by value."""
    lengths: torch.Tensor
    """int64 [bs]: accepted draft nodes."""
    bonus: torch.Tensor
    """int64 [bs]: the target's own token after the last accepted node; the next round's root."""

    @property
    def committed(self) -> torch.Tensor:
        """int64 [bs]: a_t, the tokens committed by this round: ``lengths + 1``."""
        return self.lengths + 1


def accept_paths(tree: DraftTree, next_tokens: torch.Tensor) -> AcceptedPaths:
    """Walk from each root to the child that holds the target's token, as long as there is one.

    With ``next_tokens`` the target's argmax this is greedy verification; with its samples it is
    exact sampling ("sample, then match"): whatever was drafted, the committed tokens are the
    target's own. Of siblings with the same token the one popped first is taken.

    Args:
        tree: on the CPU.
        next_tokens: int64 [bs, N] on the CPU, the target's token at every node (nodes that the
            walk can't reach may hold anything).

    Raises:
        ValueError: ``next_tokens`` doesn't have the tree's shape.
    """
    if next_tokens.shape != tree.token_ids.shape:
        raise ValueError(
            f"next_tokens must be {list(tree.token_ids.shape)}, not {list(next_tokens.shape)}"
        )
    batch_size, width = next_tokens.shape
    token_ids = on_host(tree.token_ids, torch.int64)
    first_child = on_host(tree.first_child, torch.int32)
    next_sibling = on_host(tree.next_sibling, torch.int32)
    wanted = on_host(next_tokens, torch.int64)
    columns = int(tree.depths.max()) + 1 if batch_size else 1
    nodes = np.empty((batch_size, columns), np.int64)
    tokens = np.empty((batch_size, columns), np.int64)
    lengths = np.empty(batch_size, np.int64)
    bonus = np.empty(batch_size, np.int64)
    _walk(
        token_ids.data_ptr(),
        first_child.data_ptr(),
        next_sibling.data_ptr(),
        wanted.data_ptr(),
        width,
        nodes,
        tokens,
        lengths,
        bonus,
    )
    return AcceptedPaths(
        nodes=torch.from_numpy(nodes),
        tokens=torch.from_numpy(tokens),
        lengths=torch.from_numpy(lengths),
        bonus=torch.from_numpy(bonus),
    )


@jit
def _walk(
    token_ids_at: int,
    first_child_at: int,
    next_sibling_at: int,
    wanted_at: int,
    width: int,
    nodes: np.ndarray,
    tokens: np.ndarray,
    lengths: np.ndarray,
    bonus: np.ndarray,
) -> None:
    shape = (len(lengths), width)
    token_ids = array_at(token_ids_at, shape, np.int64)
    first_child = array_at(first_child_at, shape, np.int32)
    next_sibling = array_at(next_sibling_at, shape, np.int32)
    wanted = array_at(wanted_at, shape, np.int64)
    nodes[:] = -1
    tokens[:] = 0
    for b in range(len(lengths)):
        node = 0
        depth = 0
        while True:
            nodes[b, depth] = node
            token = wanted[b, node]
            tokens[b, depth] = token
            child = first_child[b, node]
            while child >= 0 and token_ids[b, child] != token:
                child = next_sibling[b, child]
            if child < 0:
                break
            node = child
            depth += 1
        lengths[b] = depth
        bonus[b] = token
