"""What the losses of TDES need, drawn from recorded rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from graft_sglang.traces import RoundRecord

_FLOOR = -1e4
"""Stands for -inf: its probability is 0 too, but 0 times it is a number."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Parallel int64 arrays [n]: edges parent -> child; ``levels`` is the child's depth - 1."""

    parents: torch.Tensor
    children: torch.Tensor
    levels: torch.Tensor


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples of all three losses; tokens are rows of ``tokens``.

    ``*_ends`` are int64 [rounds + 1] offsets: which examples a round gave.
    """

    tokens: torch.Tensor
    """int64 [U]: the vocabulary ids that occur, ascending."""
    kl_parents: torch.Tensor
    """int64 [n]: accepted parents, roots included, that have candidates below them (Eq. 9)."""
    kl_levels: torch.Tensor
    """int64 [n]"""
    kl_children: torch.Tensor
    """int64 [n, K]"""
    log_q: torch.Tensor
    """float32 [n, K]"""
    target_logits: torch.Tensor
    """float32 [n, K]"""
    kl_ends: torch.Tensor
    edges: Edges
    """Every verified edge (Eq. 11)."""
    labels: torch.Tensor
    """float32 [n]: 1 where the child is the target's next token under its parent."""
    edge_ends: torch.Tensor
    positives: Edges
    """v+ of every pair (Eq. 10)."""
    negatives: Edges
    """v- of every pair."""
    pair_ends: torch.Tensor

    def __len__(self) -> int:
        """Rounds."""
        return len(self.kl_ends) - 1

    @property
    def positive_weight(self) -> float:
        """w1 of Eq. 11: negatives for each positive."""
        positive = float(self.labels.sum())
        return (len(self.labels) - positive) / max(positive, 1.0)


def collect_examples(records: Iterable[RoundRecord]) -> Examples:
    """Examples from the greedy rounds; a sampled round does not say what the target prefers.

    Raises:
        ValueError: there is no greedy round.
    """
    kl: list[list[np.ndarray]] = [[], [], [], [], []]
    edges: list[list[np.ndarray]] = [[], [], [], []]
    pairs: list[np.ndarray] = []
    ends: list[list[int]] = [[0], [0], [0]]
    for record in records:
        if not record.greedy:
            continue
        count = len(record.target_logits)
        kl[0].append(record.tree_tokens[record.accepted[:count]])
        kl[1].append(np.arange(count))
        kl[2].append(record.token_ids[:count])
        kl[3].append(np.maximum(record.log_probs[:count], _FLOOR))
        kl[4].append(np.maximum(record.target_logits, _FLOOR))
        above = record.tree_parents[1:]
        edges[0].append(record.tree_tokens[above])
        edges[1].append(record.tree_tokens[1:])
        edges[2].append(record.tree_depths[1:] - 1)
        edges[3].append(record.tree_tokens[1:] == record.target_tokens[above])
        found = mismatch_pairs(record)
        pairs.append(found)
        for place, length in zip(ends, (count, len(above), len(found)), strict=True):
            place.append(place[-1] + length)
    if not kl[0]:
        raise ValueError("The traces hold no greedy round to train on.")
    tokens, rows = _compact(
        [*(np.concatenate(kl[i]) for i in (0, 2)), *(np.concatenate(edges[i]) for i in (0, 1))]
    )
    pair = torch.from_numpy(np.concatenate(pairs))
    pair_rows = torch.searchsorted(tokens, pair[:, :4].contiguous())
    return Examples(
        tokens=tokens,
        kl_parents=rows[0],
        kl_levels=torch.from_numpy(np.concatenate(kl[1])),
        kl_children=rows[1],
        log_q=torch.from_numpy(np.concatenate(kl[3])),
        target_logits=torch.from_numpy(np.concatenate(kl[4])),
        kl_ends=torch.tensor(ends[0]),
        edges=Edges(rows[2], rows[3], torch.from_numpy(np.concatenate(edges[2])).long()),
        labels=torch.from_numpy(np.concatenate(edges[3])).float(),
        edge_ends=torch.tensor(ends[1]),
        positives=Edges(pair_rows[:, 0], pair_rows[:, 1], pair[:, 4]),
        negatives=Edges(pair_rows[:, 2], pair_rows[:, 3], pair[:, 4]),
        pair_ends=torch.tensor(ends[2]),
    )


def mismatch_pairs(record: RoundRecord) -> np.ndarray:
    """The pairs of a mismatched round: int64 [n, 5], columns p+, c+, p-, c-, depth - 1.

    The walk stopped at node p, and the target's next token y stands in the tree at the depth
    below p, under other parents. v+ is (p, y); v- is (each such parent's token, y), unless that
    is p's token too, and (p, each child that p has in the tree). Empty where the round is not a
    mismatch.
    """
    stop = int(record.accepted[-1])
    depths = record.tree_depths
    level = int(depths[stop])
    parent, wanted = record.tree_tokens[stop], record.target_tokens[stop]
    elsewhere = (record.tree_tokens == wanted) & (depths == level + 1)
    wrong_parents = record.tree_tokens[record.tree_parents[elsewhere]]
    if not len(wrong_parents):
        return np.empty((0, 5), np.int64)
    wrong_parents = np.unique(wrong_parents[wrong_parents != parent])
    competing = record.tree_tokens[record.tree_parents == stop]
    count = len(wrong_parents) + len(competing)
    pairs = np.empty((count, 5), np.int64)
    pairs[:, 0] = parent
    pairs[:, 1] = wanted
    pairs[:, 2] = np.concatenate((wrong_parents, np.full(len(competing), parent)))
    pairs[:, 3] = np.concatenate((np.full(len(wrong_parents), wanted), competing))
    pairs[:, 4] = level
    return pairs


def _compact(arrays: Sequence[np.ndarray]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The sorted distinct values of all arrays, and each array as rows of them."""
    distinct = np.unique(np.concatenate([array.ravel() for array in arrays])).astype(np.int64)
    rows = [torch.from_numpy(np.searchsorted(distinct, array)) for array in arrays]
    return torch.from_numpy(distinct), rows
