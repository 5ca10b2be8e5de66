"""Serves a TDES checkpoint: the paper's edge score, and one renormalised for each parent."""

from __future__ import annotations

import logging
import math
from typing import Self

import torch

from graft_sglang.contracts import ComponentContext, DraftCandidates, EdgeScorer, EdgeScores
from graft_sglang.scorers.tdes.checkpoint import check_target, load_checkpoint
from graft_sglang.scorers.tdes.tables import ProjectedTables

logger = logging.getLogger(__name__)


class TDESScorer(EdgeScorer):
    """S(p, c, d) = log q_d(c) + beta * (f(p, c, d) - mean of f over C_{p,d}) (Eq. 4-5).

    C_{p,d} are the K candidates of depth d. With beta 0 the scores are DDTree's.
    """

    def __init__(self, tables: ProjectedTables, beta: float) -> None:
        """A scorer over tables on the device of the candidates.

        Raises:
            ValueError: ``beta`` is negative or not finite.
        """
        if not (math.isfinite(beta) and beta >= 0):
            raise ValueError(f"GRAFT's beta must be a number from 0 up, not {beta}.")
        self._tables = tables
        self._beta = beta
        self._tokens = torch.empty(0, dtype=torch.int64)
        self._vectors = torch.empty(0)

    @classmethod
    def from_context(cls, context: ComponentContext) -> Self:
        """Load ``tdes_path``; the server's options also give ``beta``.

        Raises:
            ValueError: no path, a bad checkpoint, or one for another target or fewer depths.
        """
        path = context.options.get("tdes_path")
        if not path:
            raise ValueError("TDES scores need a checkpoint: name one with --graft-tdes-path.")
        model, info = load_checkpoint(path)
        if context.target_embedding is None:
            raise ValueError("TDES scores need the target's input embedding.")
        if context.depth > info.depth:
            raise ValueError(
                f"The TDES checkpoint '{path}' knows {info.depth} draft depths, but this drafter "
                f"has {context.depth}."
            )
        if context.num_candidates != info.candidates:
            logger.warning(
                "The TDES checkpoint '%s' was trained on %d candidates a depth; this server uses "
                "%d.",
                path,
                info.candidates,
                context.num_candidates,
            )
        embedding = context.target_embedding()
        check_target(info, embedding, path)
        tables = ProjectedTables.project(model, embedding, context.device)
        return cls(tables, float(context.options["beta"]))

    def score(self, candidates: DraftCandidates) -> EdgeScores:
        residual = self._residual(candidates)
        residual.sub_(residual.mean(dim=-1, keepdim=True))
        return EdgeScores(torch.add(candidates.log_probs[:, :, None], residual))

    def _residual(self, candidates: DraftCandidates) -> torch.Tensor:
        """beta * f, up to a constant a parent: float32 [bs, D, K, K]; depth 1 has its row K times.

        One lookup of all tokens and one batched product. The levels of the tokens, root first,
        come before the requests, so that parents and children are two windows of one buffer.
        u_d is added to the parents alone: on the children's side it gives every child of a parent
        the same, which both forms of the score take out again.
        """
        batch_size, depth, k = candidates.token_ids.shape
        tables = self._tables
        width = tables.depth_embedding.shape[1]
        size = (depth + 1) * batch_size * k
        if len(self._tokens) < size:
            # A tensor made in inference mode could not be written to outside it.
            with torch.inference_mode(False):
                self._tokens = torch.empty(size, dtype=torch.int64, device=tables.rows.device)
                self._vectors = tables.rows.new_empty(size, 2 * width)
        tokens, vectors = self._tokens[:size], self._vectors[:size]
        levels = tokens.view(depth + 1, batch_size, k)
        levels[0] = candidates.root[:, None]
        levels[1:] = candidates.token_ids.transpose(0, 1)
        torch.index_select(tables.rows, 0, tokens, out=vectors)
        below = batch_size * k
        parents = vectors[:-below, :width].unflatten(0, (depth, below))
        parents.add_(tables.depth_embedding[:depth, None])
        product = torch.bmm(
            parents.reshape(depth * batch_size, k, width),
            vectors[below:, width:].view(depth * batch_size, k, width).transpose(1, 2),
        )
        product.mul_(self._beta * tables.scale)
        return product.view(depth, batch_size, k, k).transpose(0, 1)


class NormalizedTDESScorer(TDESScorer):
    """A probability for every edge: log-softmax over C of (log q + beta f), plus log of q's mass.

    Mean-centred scores of different parents are not comparable: a parent whose children all fit
    badly scores its best one like a parent with a good one. Here the children of every parent
    share the mass that the drafter gives to the candidates of the depth, so a path's score is a
    log-probability. With beta 0 the scores are DDTree's up to rounding.
    """

    def score(self, candidates: DraftCandidates) -> EdgeScores:
        log_probs = candidates.log_probs
        shares = torch.add(log_probs[:, :, None], self._residual(candidates)).log_softmax(dim=-1)
        return EdgeScores(shares.add_(log_probs.logsumexp(dim=-1)[:, :, None, None]))
