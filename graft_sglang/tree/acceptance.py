"""The walk that decides what is committed: follow the target's own tokens down the tree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from graft_sglang.contracts import DraftTree
from graft_sglang.tree.jit import jit


@dataclass(frozen=True, slots=True)
class AcceptedPaths:
    """What one round commits; ``P`` is the longest accepted path of the batch plus one."""

    nodes: torch.Tensor
    """int64 [bs, P]: node of each depth on the accepted path, the root first, -1 beyond it."""
    tokens: torch.Tensor
    """int64 [bs, P]: committed tokens (accepted drafts, then the bonus token), 0 beyond them."""
    lengths: torch.Tensor
    """int64 [bs]: accepted draft nodes; ``lengths + 1`` tokens are committed."""
    bonus: torch.Tensor
    """int64 [bs]: the target's own token after the last accepted node; the next round's root."""


def accept_paths(tree: DraftTree, next_tokens: torch.Tensor) -> AcceptedPaths:
    """Walk from each root to the child that holds the target's token, as long as there is one.

    With ``next_tokens`` the target's argmax this is greedy verification; with its samples it is
    exact sampling ("sample, then match"): whatever was drafted, the committed tokens are the
    target's own.

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
    batch_size = next_tokens.shape[0]
    columns = int(tree.depths.max()) + 1 if batch_size else 1
    nodes = np.full((batch_size, columns), -1, np.int64)
    tokens = np.zeros((batch_size, columns), np.int64)
    lengths = np.zeros(batch_size, np.int64)
    bonus = np.zeros(batch_size, np.int64)
    _walk(
        tree.token_ids.numpy(),
        tree.first_child.numpy(),
        tree.next_sibling.numpy(),
        np.ascontiguousarray(next_tokens.numpy()),
        nodes,
        tokens,
        lengths,
        bonus,
    )
    used = int(lengths.max(initial=0)) + 1
    return AcceptedPaths(
        nodes=torch.from_numpy(nodes[:, :used]),
        tokens=torch.from_numpy(tokens[:, :used]),
        lengths=torch.from_numpy(lengths),
        bonus=torch.from_numpy(bonus),
    )


@jit
def _walk(token_ids, first_child, next_sibling, wanted, nodes, tokens, lengths, bonus):
    for b in range(token_ids.shape[0]):
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
