"""The data of one decoding round and the three parts that can be swapped.

A round is ``DraftCandidates -> EdgeScorer -> EdgeScores -> BudgetPolicy -> budgets -> TreeBuilder
-> DraftTree -> verify -> RoundOutcome -> BudgetPolicy.observe``. Shapes use: ``bs`` requests in
the batch, ``D`` draft depths (the DFlash block size minus one), ``K`` candidates a depth, ``N``
the widest tree of the batch with its root. Nothing here imports an engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

_CPU = torch.device("cpu")

MAX_BUDGET = 1024
"""Largest budget any part may be asked for: the DDTree paper's largest tree."""

MAX_DEPTH = 63
"""Deepest tree a builder must support (DFlash block sizes in use are 8 to 32)."""


@dataclass(frozen=True, slots=True)
class DraftCandidates:
    """What one drafter forward says about the next ``D`` tokens of each request.

    The candidates of a depth are in order of falling probability; the order among equals is the
    top-k kernel's.
    """

    root: torch.Tensor
    """int64 [bs]: the last committed token (the bonus token of the round before)."""
    token_ids: torch.Tensor
    """int64 [bs, D, K]: c_{t,d}^{(r)} of the paper, r = column + 1."""
    log_probs: torch.Tensor
    """float32 [bs, D, K], nats: log q_{t,d}, softmax over the full vocabulary."""
    hidden_cosines: torch.Tensor
    """float32 [bs, D - 1]: r_{t,d} = cos(h_{t,d}, h_{t,d+1}) of Eq. 15."""

    @property
    def top1_probs(self) -> torch.Tensor:
        """float32 [bs, D]: q_{t,d}(c_{t,d}^{(1)}); its mean over depths is conf_t of Eq. 15."""
        return self.log_probs[:, :, 0].exp()


@dataclass(frozen=True, slots=True)
class EdgeScores:
    """Scores of the edges parent -> child.

    ``values[b, d, p, k]`` scores candidate ``k`` of depth ``d + 1`` under candidate ``p`` of
    depth ``d`` (under the root where ``d == 0``: there only ``p == 0`` is read). ``P`` is 1 when
    the parent is ignored, else ``K``.
    """

    values: torch.Tensor
    """float32 [bs, D, P, K]; -inf is allowed, NaN and +inf are not (rows that are never read,
    ``d == 0, p > 0``, may hold anything)."""


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Draft trees of a batch, node-major, in pop order: node 0 is the root, parents come first.

    Rows are padded to ``N``; columns at and after ``num_nodes[b]`` hold token 0, parent -1,
    depth 0, score 0, link -1 and an ancestor mask of 0. The first ``B + 1`` nodes of a row are
    the tree of budget ``B`` (nested order); its links are those that stay inside. All tensors
    are on the CPU.
    """

    token_ids: torch.Tensor
    """int64 [bs, N]"""
    parents: torch.Tensor
    """int32 [bs, N]: node index of the parent, -1 for the root."""
    depths: torch.Tensor
    """int32 [bs, N]: 0 for the root. Position of a node = prefix length + depth."""
    scores: torch.Tensor
    """float64 [bs, N]: sum of the edge scores from the root (Eq. 3 or 13), 0 for the root."""
    first_child: torch.Tensor
    """int32 [bs, N]: the child popped first, -1 where there is none."""
    next_sibling: torch.Tensor
    """int32 [bs, N]: the sibling popped next, -1 where there is none."""
    ancestors: torch.Tensor
    """int64 [bs, N, W], W = ceil(N / 64): bit ``j % 64`` of word ``j // 64`` of row ``i`` is set
    iff node ``j`` is ``i`` itself or one of its ancestors (the root included)."""
    num_nodes: torch.Tensor
    """int32 [bs]: nodes of each tree, root included."""


@dataclass(frozen=True, slots=True)
class DecodingState:
    """s_t of Eq. 15 and what else a budget may depend on, one row a request of the batch."""

    confidence: torch.Tensor
    """float32 [bs]: conf_t, mean top-1 probability over the depths."""
    degeneration: torch.Tensor
    """float32 [bs]: degen_t of Eq. 15."""
    history: torch.Tensor
    """float32 [bs]: mean of the last ``w`` values of a_t (tokens a round); NaN without history."""
    prefix_lens: torch.Tensor
    """int64 [bs]: committed tokens whose KV is in the target's cache."""
    candidates: DraftCandidates
    scores: EdgeScores


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What a verified round brought, one row a request of the batch."""

    budgets: torch.Tensor
    """int64 [bs]: B_t as selected."""
    committed: torch.Tensor
    """int64 [bs]: a_t, accepted draft tokens + 1 (the target's own next token)."""
    prefix_lens: torch.Tensor
    """int64 [bs]: as in the ``DecodingState`` of the round."""
    latency_s: float
    """Seconds from the start of the draft forward to the commit, for the whole batch."""


@dataclass(frozen=True, slots=True)
class ComponentContext:
    """What a component may know of the server when it is built."""

    depth: int
    """D"""
    num_candidates: int
    """K"""
    max_budget: int
    """Largest budget the server's buffers hold."""
    vocab_size: int
    device: torch.device
    """The server's."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Every field of ``GraftConfig`` by name."""
    target_embedding: Callable[[], torch.Tensor] | None = None
    """Returns the target's input embeddings [vocab_size, E]; not called unless needed."""
    round_device: torch.device = _CPU
    """Where a round's candidates are handed to scorer and policy: the builder's ``device``."""


class EdgeScorer(ABC):
    """Scores the edges of a draft tree from one drafter forward."""

    @classmethod
    def from_context(cls, context: ComponentContext) -> EdgeScorer:
        """Build the scorer for a server. Raise ``ValueError`` with one sentence if it can't be."""
        del context
        return cls()

    @abstractmethod
    def score(self, candidates: DraftCandidates) -> EdgeScores:
        """Return the scores of all edges that the builder may ask for."""


class BudgetPolicy(ABC):
    """Chooses the number of draft nodes B_t of each request, every round."""

    @classmethod
    @abstractmethod
    def from_context(cls, context: ComponentContext) -> BudgetPolicy:
        """Build the policy for a server. Raise ``ValueError`` with one sentence if it can't be."""

    @property
    @abstractmethod
    def max_budget(self) -> int:
        """The largest budget that ``select`` can return."""

    @abstractmethod
    def select(self, state: DecodingState) -> torch.Tensor:
        """Return int64 [bs] on the CPU: nodes of each request's tree, the root not counted."""

    def observe(self, outcome: RoundOutcome) -> None:
        """Learn from a verified round. The default learns nothing."""
        del outcome


class TreeBuilder(ABC):
    """Turns edge scores into draft trees."""

    device = _CPU
    """Where candidates and scores are handed over: a round's candidates go there in one copy."""

    @classmethod
    def from_context(cls, context: ComponentContext) -> TreeBuilder:
        """Build the builder for a server. Raise ``ValueError`` with one sentence if it can't be."""
        del context
        return cls()

    @abstractmethod
    def build(
        self,
        candidates: DraftCandidates,
        scores: EdgeScores,
        budgets: torch.Tensor,
        max_depths: torch.Tensor | None = None,
    ) -> DraftTree:
        """Grow one tree a request.

        A builder made by ``from_context`` may overwrite the tree it returned last.

        Args:
            budgets: int64 [bs] on the CPU, 0..``MAX_BUDGET``; a tree has at most that many nodes
                besides its root, fewer only where no further edge exists.
            max_depths: int64 [bs] on the CPU, the deepest node allowed in each tree; ``None``
                allows all ``D`` depths.

        Raises:
            ValueError: shapes or values outside these contracts, among them NaN and +inf scores.
        """
