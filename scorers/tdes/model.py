"""The compatibility score of TDES: does child c follow parent p at depth d (Eq. 6)?"""

from __future__ import annotations

import math

import torch
from torch import nn

DEFAULT_WIDTH = 128
"""m"""


class TDESModel(nn.Module):
    """f(p, c, d) = s * <g_p(e_p) + u_d, g_c(e_c) + u_d> / sqrt(m) (Eq. 6).

    ``e`` are the target's frozen input embeddings, which are no part of the model.
    """

    def __init__(self, hidden_size: int, depth: int, width: int = DEFAULT_WIDTH) -> None:
        """Random projections, zero depth embeddings, s = 1.

        Args:
            hidden_size: E
            depth: D
            width: m
        """
        super().__init__()
        self.g_parent = nn.Linear(hidden_size, width, bias=False)
        self.g_child = nn.Linear(hidden_size, width, bias=False)
        self.depth_embedding = nn.Parameter(torch.zeros(depth, width))
        """[D, m]: row d - 1 is u_d."""
        self.log_s = nn.Parameter(torch.zeros(()))

    @property
    def hidden_size(self) -> int:
        """E"""
        return self.g_parent.in_features

    @property
    def depth(self) -> int:
        """D"""
        return self.depth_embedding.shape[0]

    @property
    def width(self) -> int:
        """m"""
        return self.depth_embedding.shape[1]

    @property
    def scale(self) -> torch.Tensor:
        """s / sqrt(m), a scalar tensor."""
        return self.log_s.exp() / math.sqrt(self.width)

    def score_projected(
        self, parents: torch.Tensor, children: torch.Tensor, levels: torch.Tensor
    ) -> torch.Tensor:
        """f of edges whose tokens are projected already; the leading shapes broadcast.

        Args:
            parents: [..., m], g_p(e_p).
            children: [..., m], g_c(e_c).
            levels: int64 [...], the children's depth minus one.

        Returns:
            [...]
        """
        shift = self.depth_embedding[levels]
        return self.scale * ((parents + shift) * (children + shift)).sum(-1)
