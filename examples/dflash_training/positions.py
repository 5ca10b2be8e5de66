"""Cross-entropy and accuracy of a drafter at each position of its block."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graft_sglang.reference.drafter import DFlashDrafter

from .fit import Teacher, gather_batch


@torch.no_grad()
def by_position(
    drafter: DFlashDrafter,
    embedding: Tensor,
    head: Tensor,
    teacher: Teacher,
    indices: Sequence[int],
) -> list[dict[str, float]]:
    """For depths 1 to D, over all anchors of the chosen answers: loss in nats, share of hits."""
    block = drafter.cfg.block_size
    loss, hits, count = (torch.zeros(block - 1) for _ in range(3))
    for index in indices:
        sequence = teacher.sequences[index]
        anchors = torch.arange(sequence.boundary, len(sequence.tokens) - 1)
        if not len(anchors):
            continue
        batch = gather_batch(teacher, [index], [anchors], block)
        embeds = drafter.block_embeds(embedding, batch.roots)
        logits = drafter(batch.features, embeds, batch.anchors)[0, :, 1:] @ head.T
        labels = batch.labels[0]
        valid = labels >= 0
        picked = logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        loss -= (picked * valid).sum(0)
        hits += ((logits.argmax(-1) == labels) & valid).sum(0)
        count += valid.sum(0)
    return [
        {"depth": d + 1, "loss": float(loss[d] / count[d]), "top1": float(hits[d] / count[d])}
        for d in range(block - 1)
    ]
