"""The three supervision signals of TDES and their sum (Eq. 7-12)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, softplus


@dataclass(frozen=True, slots=True)
class LossWeights:
    """Weights of Eq. 12 and the margin of Eq. 10; the paper's values where it gives them."""

    kl: float = 1.0
    pair: float = 1.0
    bce: float = 0.25
    margin: float = 1.0
    """gamma"""


def kl_loss(scores: torch.Tensor, log_q: torch.Tensor, target_logits: torch.Tensor) -> torch.Tensor:
    """Mean over parents of KL(pi_tgt || pi_theta), in nats (Eq. 7-9).

    Both distributions are over the K candidates of the depth: pi_tgt from the target's logits,
    pi_theta from log q + f.

    Args:
        scores: [n, K], f of every candidate under each parent.
        log_q: [n, K], the drafter's log-probabilities.
        target_logits: [n, K]
    """
    target = target_logits.log_softmax(-1)
    model = (log_q + scores).log_softmax(-1)
    return (target.exp() * (target - model)).sum(-1).mean()


def pair_loss(positive: torch.Tensor, negative: torch.Tensor, margin: float = 1.0) -> torch.Tensor:
    """Mean of softplus(gamma - f(v+) + f(v-)) (Eq. 10).

    Args:
        positive: [n], f of the compatible edge.
        negative: [n], f of its incompatible alternative.
    """
    return softplus(margin - positive + negative).mean()


def bce_loss(scores: torch.Tensor, labels: torch.Tensor, positive_weight: float) -> torch.Tensor:
    """Class-balanced binary cross-entropy over verified edges (Eq. 11).

    Args:
        scores: [n], f of each edge.
        labels: [n], 1 where the child is the target's next token under its parent, else 0.
        positive_weight: w1, the number of negatives for each positive of the training data.
    """
    weight = torch.as_tensor(positive_weight, dtype=scores.dtype)
    return binary_cross_entropy_with_logits(scores, labels, pos_weight=weight)


def total_loss(
    kl: torch.Tensor, pair: torch.Tensor, bce: torch.Tensor, weights: LossWeights
) -> torch.Tensor:
    """The training objective (Eq. 12)."""
    return weights.kl * kl + weights.pair * pair + weights.bce * bce
