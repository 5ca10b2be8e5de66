"""Serves a TDES checkpoint: the paper's edge score, and one renormalised for each parent."""

from __future__ import annotations

import logging
import math
from typing import Self

from graft_sglang.contracts import ComponentContext, DraftCandidates, EdgeScorer, EdgeScores
from graft_sglang.scorers.tdes.checkpoint import check_target, load_checkpoint
from graft_sglang.scorers.tdes.tables import ProjectedTables
from graft_sglang.token_pairs import TokenPairScores

logger = logging.getLogger(__name__)


class TDESScorer(EdgeScorer):
    """S(p, c, d) = log q_d(c) + beta * (f(p, c, d) - mean of f over C_{p,d}) (Eq. 4-5).

    C_{p,d} are the K candidates of depth d. With beta 0 the scores are DDTree's.
    """

    _normalized = False

    def __init__(self, tables: ProjectedTables, beta: float) -> None:
        """A scorer over tables on the device of the candidates.

        Raises:
            ValueError: ``beta`` is negative or not finite.
        """
        if not (math.isfinite(beta) and beta >= 0):
            raise ValueError(f"GRAFT's beta must be a number from 0 up, not {beta}.")
        self._tables = tables
        self._beta = beta

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
        tables = ProjectedTables.project(model, embedding, context.round_device)
        return cls(tables, float(context.options["beta"]))

    def score(self, candidates: DraftCandidates) -> EdgeScores:
        """Computed when they are read: see ``TokenPairScores``."""
        tables = self._tables
        return TokenPairScores(
            candidates,
            tables.rows,
            tables.depth_embedding,
            self._beta * tables.scale,
            self._normalized,
        )


class NormalizedTDESScorer(TDESScorer):
    """A probability for every edge: log-softmax over C of (log q + beta f), plus log of q's mass.

    Mean-centred scores of different parents are not comparable: a parent whose children all fit
    badly scores its best one like a parent with a good one. Here the children of every parent
    share the mass that the drafter gives to the candidates of the depth, so a path's score is a
    log-probability. With beta 0 the scores are DDTree's up to rounding.
    """

    _normalized = True
