"""G_p and G_c: every token of the vocabulary projected once, when a scorer is loaded."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from graft_sglang.scorers.tdes.model import TDESModel

_CHUNK = 8192
"""Rows projected at a time: bounds the float32 copy of the embedding."""


@dataclass(frozen=True, slots=True)
class ProjectedTables:
    """Eq. 6 with the projections done.

    f = scale * <rows[p, :m] + u_d, rows[c, m:] + u_d>. A token's two vectors stand side by side
    because a round looks both up: it is a child at one depth and a parent at the next.
    """

    rows: torch.Tensor
    """float32 [V, 2 m]: G_p, then G_c."""
    depth_embedding: torch.Tensor
    """float32 [D, m]: row d - 1 is u_d."""
    scale: float
    """s / sqrt(m)"""

    @classmethod
    def project(
        cls, model: TDESModel, embedding: torch.Tensor, device: torch.device | str = "cpu"
    ) -> ProjectedTables:
        """Project the whole input embedding.

        Args:
            embedding: floating point [V, E]: the full vocabulary, also where the server shards it.
            device: where the tables are kept.
        """
        with torch.no_grad():
            weight = torch.cat((model.g_parent.weight, model.g_child.weight))
            weight = weight.to(embedding.device).T
            rows = torch.empty(len(embedding), 2 * model.width, device=device)
            for start in range(0, len(embedding), _CHUNK):
                part = embedding[start : start + _CHUNK].float()
                rows[start : start + _CHUNK] = part @ weight
            return cls(
                rows=rows,
                depth_embedding=model.depth_embedding.detach().clone().to(device),
                scale=float(model.scale),
            )
