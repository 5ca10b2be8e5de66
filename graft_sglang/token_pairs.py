"""Edge scores that come from a vector a token: computed where a tree reaches, or all at once."""

from __future__ import annotations

import torch

from graft_sglang.contracts import DraftCandidates, EdgeScores


class TokenPairScores(EdgeScores):
    """S(p, c, d) = log q_d(c) + f(p, c, d) - a shift for each parent.

    f(p, c, d) = scale * <rows[p, 0] + u_d, rows[c, 1]>. The shift is the mean of f over the K
    candidates of the depth (Eq. 4), or, ``normalized``, what makes the parent's children share
    the mass that the drafter gives to the candidates of the depth: a log-softmax of
    log q_d + f over them, plus the logarithm of that mass.

    A tree of B nodes reads at most B of the D * K rows of ``values``. On the CPU the best-first
    builder computes those alone; whoever else reads ``values`` gets all of them.
    """

    __slots__ = ("candidates", "depth_vectors", "normalized", "rows", "scale")

    candidates: DraftCandidates
    rows: torch.Tensor
    depth_vectors: torch.Tensor
    scale: float
    normalized: bool

    def __init__(
        self,
        candidates: DraftCandidates,
        rows: torch.Tensor,
        depth_vectors: torch.Tensor,
        scale: float,
        normalized: bool,
    ) -> None:
        """Nothing is computed or copied yet.

        Args:
            rows: float32 [V, 2 m], contiguous: each token's vector as a parent, then as a child.
            depth_vectors: float32 [D or more, m], contiguous: row d - 1 is u_d.
        """
        for name, value in (
            ("candidates", candidates),
            ("rows", rows),
            ("depth_vectors", depth_vectors),
            ("scale", scale),
            ("normalized", normalized),
        ):
            object.__setattr__(self, name, value)

    @property
    def values(self) -> torch.Tensor:
        """float32 [bs, D, K, K]; depth 1 holds the root's row K times.

        The mean of f over a parent's children is <parent, mean of the children>. So the children
        are centred, once for all their parents, and one batched product gives f minus its mean.
        """
        given = self.candidates
        batch_size, depth, k = given.token_ids.shape
        width = self.depth_vectors.shape[1]
        above = torch.cat(
            (given.root[:, None, None].expand(-1, 1, k), given.token_ids[:, :-1]), dim=1
        )
        parents = self.rows[:, :width][above] + self.depth_vectors[:depth, None]
        children = self.rows[:, width:][given.token_ids]
        children = children - children.mean(dim=2, keepdim=True)
        flat = (batch_size * depth, k)
        values = torch.baddbmm(
            given.log_probs.reshape(flat[0], 1, k),
            parents.view(*flat, width),
            children.view(*flat, width).transpose(1, 2),
            alpha=self.scale,
        ).view(batch_size, depth, k, k)
        if not self.normalized:
            return values
        mass = given.log_probs.logsumexp(dim=-1)
        return values.log_softmax(dim=-1).add_(mass[:, :, None, None])

    @property
    def marginals(self) -> EdgeScores:
        """The scores without f and without a shift: DDTree's."""
        return EdgeScores(self.candidates.log_probs[:, :, None])
