"""The three losses of a batch of rounds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import embedding

from graft_sglang.scorers.tdes.examples import Edges, Examples
from graft_sglang.scorers.tdes.losses import (
    LossWeights,
    bce_loss,
    kl_loss,
    pair_loss,
    total_loss,
)
from graft_sglang.scorers.tdes.model import TDESModel


@dataclass(frozen=True, slots=True)
class BatchLosses:
    """Scalars with gradients, and how many examples each is the mean of (0: the loss is 0)."""

    total: torch.Tensor
    parts: dict[str, torch.Tensor]
    """``kl``, ``pair``, ``bce``."""
    counts: dict[str, int]


class Batcher:
    """Computes losses of chosen rounds; the embeddings of the tokens that occur are kept."""

    def __init__(
        self, examples: Examples, target_embedding: torch.Tensor, weights: LossWeights
    ) -> None:
        """Gather the embeddings once.

        Args:
            target_embedding: floating point [V, E].
        """
        self._examples = examples
        self._embeddings = target_embedding[examples.tokens].float()
        self._weights = weights
        self._positive_weight = examples.positive_weight

    def losses(self, model: TDESModel, rounds: torch.Tensor) -> BatchLosses:
        """Eq. 12 over the rounds.

        Args:
            rounds: int64 [n], indices of rounds.
        """
        data = self._examples
        at_kl = _members(data.kl_ends, rounds)
        at_edges = _members(data.edge_ends, rounds)
        at_pairs = _members(data.pair_ends, rounds)
        chosen = [
            Edges(data.kl_parents[at_kl][:, None], data.kl_children[at_kl], data.kl_levels[at_kl]),
            _take(data.edges, at_edges),
            _take(data.positives, at_pairs),
            _take(data.negatives, at_pairs),
        ]
        parents = self._project(model.g_parent.weight, [edges.parents for edges in chosen])
        children = self._project(model.g_child.weight, [edges.children for edges in chosen])
        levels = [chosen[0].levels[:, None], *(edges.levels for edges in chosen[1:])]
        scores = [
            model.score_projected(p, c, at)
            for p, c, at in zip(parents, children, levels, strict=True)
        ]
        zero = model.log_s.new_zeros(())
        counts = {"kl": len(at_kl), "pair": len(at_pairs), "bce": len(at_edges)}
        parts = {
            "kl": kl_loss(scores[0], data.log_q[at_kl], data.target_logits[at_kl]),
            "pair": pair_loss(scores[2], scores[3], self._weights.margin)
            if counts["pair"]
            else zero,
            "bce": bce_loss(scores[1], data.labels[at_edges], self._positive_weight)
            if counts["bce"]
            else zero,
        }
        return BatchLosses(total_loss(**parts, weights=self._weights), parts, counts)

    def _project(self, weight: torch.Tensor, tokens: list[torch.Tensor]) -> list[torch.Tensor]:
        """g(e) of every token, each distinct one projected once."""
        flat = torch.cat([part.reshape(-1) for part in tokens])
        distinct, rows = torch.unique(flat, return_inverse=True)
        projected = embedding(rows, self._embeddings[distinct] @ weight.T)
        pieces = projected.split([part.numel() for part in tokens])
        return [
            piece.view(*part.shape, len(weight)) for piece, part in zip(pieces, tokens, strict=True)
        ]


def _members(ends: torch.Tensor, rounds: torch.Tensor) -> torch.Tensor:
    """int64 [n]: the examples of the rounds."""
    starts = ends[rounds]
    lengths = ends[rounds + 1] - starts
    first = lengths.cumsum(0) - lengths
    return torch.repeat_interleave(starts - first, lengths) + torch.arange(int(lengths.sum()))


def _take(edges: Edges, at: torch.Tensor) -> Edges:
    return Edges(edges.parents[at], edges.children[at], edges.levels[at])
