"""Labels and cross-entropies of draft blocks, over the whole vocabulary or a shortlist of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from .teacher import Soft


def soft_labels(labels: Tensor, soft: Soft, soft_share: float) -> tuple[Tensor, Tensor]:
    """Mix the target's distribution with the token that it chose.

    labels: int64 [..., D] (-100 = none). Returns ids int64 [..., D, 1 + K] and probabilities
    float32 of the same shape: ``1 - soft_share`` on the chosen token, ``soft_share`` spread as the
    target's top K, renormalised.
    """
    ids = torch.cat((labels.clamp(min=0)[..., None], soft.ids), dim=-1)
    mass = soft.probs.sum(-1, keepdim=True).clamp(min=1e-6)
    hard = torch.full_like(labels[..., None], 1, dtype=torch.float32) * (1 - soft_share)
    return ids, torch.cat((hard, soft.probs / mass * soft_share), dim=-1)


class Vocabulary:
    """The head's rows a step's logits cover: frequent tokens plus whatever the labels name."""

    def __init__(self, head: Tensor, answer_tokens: Sequence[int], shortlist: int | None) -> None:
        self._head = head
        self._kept = torch.zeros(len(head), dtype=torch.bool)
        if shortlist is None:
            self._kept[:] = True
        else:
            common = [t for t, _ in Counter(answer_tokens).most_common(shortlist)]
            self._kept[torch.tensor(common)] = True

    def cover(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Rows float32 [R, H] of a covering sub-vocabulary, and ``ids`` as indices into it."""
        if self._kept.all():
            return self._head, ids
        kept = self._kept.clone()
        kept[ids.flatten()] = True
        index = kept.cumsum(0) - 1
        return self._head[kept], index[ids]


def block_losses(
    hidden: Tensor, vocabulary: Vocabulary, ids: Tensor, probs: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Cross-entropy against soft labels, a value for each draft position.

    hidden: float32 [B, N, D, H]; ids, probs: [B, N, D, 1 + K] with the chosen token first;
    labels: int64 [B, N, D]. Returns losses float32 [B, N, D] and bool [B, N, D], True where the
    drafter's most likely (covered) token is the chosen one.
    """
    rows, indices = vocabulary.cover(ids)
    logits = hidden.flatten(0, 2) @ rows.T
    flat = indices.flatten(0, 2)
    picked = logits.gather(1, flat)
    log_q = picked - logits.logsumexp(-1, keepdim=True)
    losses = -(probs.flatten(0, 2) * log_q).sum(-1)
    hits = logits.detach().argmax(-1) == flat[:, 0]
    return losses.view(labels.shape), hits.view(labels.shape)
