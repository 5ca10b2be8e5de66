"""Equations 4-6 in plain Python floats, term by term: the slow truth."""

from __future__ import annotations

import math

import torch

from graft_sglang.contracts import DraftCandidates
from graft_sglang.scorers.tdes.model import TDESModel


def _project(weight: list[list[float]], e: list[float]) -> list[float]:
    return [math.fsum(w * x for w, x in zip(row, e, strict=True)) for row in weight]


def compatibility(model: TDESModel, embedding: torch.Tensor, p: int, c: int, d: int) -> float:
    """f(p, c, d) of Eq. 6; p and c are tokens, d counts from 1."""
    u = model.depth_embedding[d - 1].tolist()
    m = len(u)
    left = _project(model.g_parent.weight.tolist(), embedding[p].tolist())
    right = _project(model.g_child.weight.tolist(), embedding[c].tolist())
    s = math.exp(model.log_s.item())
    inner = math.fsum((a + x) * (b + x) for a, b, x in zip(left, right, u, strict=True))
    return s * inner / math.sqrt(m)


def edge_scores(
    model: TDESModel,
    embedding: torch.Tensor,
    candidates: DraftCandidates,
    beta: float,
    normalized: bool,
) -> torch.Tensor:
    """float64 [bs, D, K, K]; rows p > 0 of depth 1 are NaN."""
    batch_size, depth, k = candidates.token_ids.shape
    scores = torch.full((batch_size, depth, k, k), math.nan, dtype=torch.float64)
    for b in range(batch_size):
        for d in range(1, depth + 1):
            children = candidates.token_ids[b, d - 1].tolist()
            log_q = candidates.log_probs[b, d - 1].tolist()
            parents = [int(candidates.root[b])]
            if d > 1:
                parents = candidates.token_ids[b, d - 2].tolist()
            for row, p in enumerate(parents):
                f = [compatibility(model, embedding, p, c, d) for c in children]
                if normalized:
                    edges = [a + beta * x for a, x in zip(log_q, f, strict=True)]
                    total = math.log(math.fsum(math.exp(x) for x in edges))
                    mass = math.log(math.fsum(math.exp(x) for x in log_q))
                    edges = [x - total + mass for x in edges]
                else:
                    mean = math.fsum(f) / len(f)
                    edges = [a + beta * (x - mean) for a, x in zip(log_q, f, strict=True)]
                scores[b, d - 1, row] = torch.tensor(edges, dtype=torch.float64)
    return scores
