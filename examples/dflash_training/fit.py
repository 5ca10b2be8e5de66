"""Fit a drafter to a target's own answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from graft_sglang.reference.drafter import DFlashDrafter

from .losses import Vocabulary, block_losses, soft_labels
from .optim import build_optimizers
from .sequences import TokenSequence, pad_right
from .teacher import Soft
from .train import AfterStepFn, LoopConfig, run_loop


class Teacher(Protocol):
    """Cached facts about the target, a sequence at a time (see ``teacher.py``)."""

    sequences: Sequence[TokenSequence]

    def available(self) -> int: ...

    def features(self, index: int) -> Tensor: ...

    def soft(self, index: int) -> Soft: ...


@dataclass(frozen=True)
class FitPlan:
    """What one step sees, and how it's weighed."""

    batch: int
    """Sequences a step."""
    anchors: int
    """Draft rounds drawn in each sequence."""
    decay: float
    """Position j of a block weighs exp(-(j - 1) / decay): an early miss costs the rest."""
    soft_share: float
    """Share of the target's own distribution in the labels; the rest is the token it chose."""
    shortlist: int | None = None
    """Frequent tokens that every step's logits cover; None = the whole vocabulary."""
    muon_steps: int = 5


@dataclass(frozen=True)
class Batch:
    """Padded inputs of one step: L positions, N anchors a sequence, D = block - 1 depths."""

    features: Tensor
    """float32 [B, L, F * H]"""
    anchors: Tensor
    """int64 [B, N]"""
    roots: Tensor
    """int64 [B, N], the committed token at each anchor."""
    labels: Tensor
    """int64 [B, N, D]; -100 beyond the sequence."""
    soft: Soft
    """ids and probs [B, N, D, K]: the target's distribution for each label's place."""


def gather_batch(
    teacher: Teacher, chosen: Sequence[int], anchors: Sequence[Tensor], block: int
) -> Batch:
    """Look up everything that the anchors of the chosen sequences need."""
    sequences = [teacher.sequences[i] for i in chosen]
    tokens = F.pad(pad_right([s.tokens for s in sequences], -100), (0, block), value=-100)
    features = torch.nn.utils.rnn.pad_sequence(
        [teacher.features(i) for i in chosen], batch_first=True
    )
    stacked = torch.stack(list(anchors))
    places = stacked[..., None] + torch.arange(1, block)
    labels = tokens.gather(1, places.flatten(1)).view_as(places)
    ids, probs = [], []
    for row, i in enumerate(chosen):
        soft = teacher.soft(i)
        before = (places[row] - 1).clamp(max=len(soft.ids) - 1)
        ids.append(soft.ids[before])
        probs.append(soft.probs[before])
    return Batch(
        features,
        stacked,
        tokens.gather(1, stacked),
        labels,
        Soft(torch.stack(ids), torch.stack(probs)),
    )


def draw_batch(teacher: Teacher, plan: FitPlan, block: int, generator: torch.Generator) -> Batch:
    """Sequences of similar length, and anchors whose next token belongs to the response."""
    by_length = sorted(range(teacher.available()), key=lambda i: len(teacher.sequences[i].tokens))
    first = int(torch.randint(len(by_length) - plan.batch + 1, (1,), generator=generator))
    chosen = by_length[first : first + plan.batch]
    anchors = []
    for i in chosen:
        sequence = teacher.sequences[i]
        span = len(sequence.tokens) - 1 - sequence.boundary
        picks = torch.randperm(span, generator=generator)[: plan.anchors]
        picks = picks[torch.arange(plan.anchors) % span]
        anchors.append(picks + sequence.boundary)
    return gather_batch(teacher, chosen, anchors, block)


def fit_drafter(
    drafter: DFlashDrafter,
    embedding: Tensor,
    head: Tensor,
    teacher: Teacher,
    plan: FitPlan,
    cfg: LoopConfig,
    checkpoint: Path,
    after_step: AfterStepFn | None = None,
) -> list[dict[str, float]]:
    """Train in place; ``embedding`` and ``head`` float32 [V, H] are the target's, frozen."""
    block = drafter.cfg.block_size
    weights = torch.exp(-torch.arange(block - 1) / plan.decay)
    frequent = [t for s in teacher.sequences for t in s.response]

    vocabulary = Vocabulary(head, frequent, plan.shortlist)

    def step_fn(_: int, generator: torch.Generator) -> tuple[Tensor, dict[str, float]]:
        batch = draw_batch(teacher, plan, block, generator)
        embeds = drafter.block_embeds(embedding, batch.roots)
        hidden = drafter(batch.features, embeds, batch.anchors)[:, :, 1:]
        ids, probs = soft_labels(batch.labels, batch.soft, plan.soft_share)
        losses, hits = block_losses(hidden, vocabulary, ids, probs, batch.labels)
        valid = batch.labels >= 0
        weighing = weights * valid
        accepted = (hits & valid).long().cumprod(-1).sum(-1).float().mean()
        figures = {
            "depth1": losses[..., 0].mean().item(),
            "accepted": accepted.item(),
        }
        return (losses * weighing).sum() / weighing.sum(), figures

    drafter.train()
    optimizers = build_optimizers(drafter, cfg.lr, muon_steps=plan.muon_steps)
    log = run_loop(drafter, optimizers, step_fn, cfg, checkpoint, "drafter", after_step)
    drafter.eval()
    return log
