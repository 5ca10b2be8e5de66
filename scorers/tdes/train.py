"""Distils the target's parent-child preferences into a TDES model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from tqdm import tqdm

from graft_sglang.scorers.tdes.batches import Batcher
from graft_sglang.scorers.tdes.examples import Examples, collect_examples
from graft_sglang.scorers.tdes.losses import LossWeights
from graft_sglang.scorers.tdes.model import DEFAULT_WIDTH, TDESModel
from graft_sglang.traces import RoundRecord


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """The paper's values; it gives no batch size."""

    epochs: int = 8
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    width: int = DEFAULT_WIDTH
    """m"""
    batch_rounds: int = 64
    seed: int = 0
    losses: LossWeights = field(default_factory=LossWeights)
    keep_best: bool = True
    """Return the epoch of the lowest validation KL instead of the last one."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The trained model and how it came about."""

    model: TDESModel
    epochs: list[dict[str, float]]
    """Of each epoch: the training losses, ``validation_kl`` and whatever ``evaluate`` gave."""
    chosen_epoch: int
    """1-based; whose weights ``model`` has."""


def train(
    training: Sequence[RoundRecord],
    validation: Sequence[RoundRecord],
    target_embedding: torch.Tensor,
    options: TrainOptions,
    evaluate: Callable[[TDESModel], dict[str, float]] | None = None,
    progress: bool = True,
) -> TrainResult:
    """Train on rounds of some prompts, report on rounds of others.

    Args:
        target_embedding: floating point [V, E], the target's input embedding.
        evaluate: further figures for the report of an epoch, e.g. the replayed MAT.
        progress: show a progress bar and a line an epoch.

    Raises:
        ValueError: no greedy round on either side, or a loss that is not finite.
    """
    if options.epochs < 1 or options.batch_rounds < 1:
        raise ValueError("Training needs at least one epoch and one round a batch.")
    examples = collect_examples(training)
    batcher = Batcher(examples, target_embedding, options.losses)
    held_out = collect_examples(validation)
    held_out_batcher = Batcher(held_out, target_embedding, options.losses)
    generator = torch.Generator().manual_seed(options.seed)
    depth = training[0].token_ids.shape[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        model = TDESModel(target_embedding.shape[1], depth, options.width)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay
    )
    history: list[dict[str, float]] = []
    best: tuple[float, int, dict[str, torch.Tensor]] | None = None
    for epoch in range(1, options.epochs + 1):
        order = torch.randperm(len(examples), generator=generator).split(options.batch_rounds)
        bar = tqdm(order, f"epoch {epoch}/{options.epochs}", disable=not progress, leave=False)
        tally = _Tally()
        for rounds in bar:
            losses = batcher.losses(model, rounds)
            if not torch.isfinite(losses.total):
                raise ValueError("A training loss is not finite: the traces hold bad numbers.")
            optimizer.zero_grad(set_to_none=True)
            losses.total.backward()
            optimizer.step()
            tally.add(losses.parts, losses.counts)
        report = tally.means()
        report["validation_kl"] = validation_kl(model, held_out_batcher, held_out)
        if evaluate is not None:
            report.update(evaluate(model))
        history.append(report)
        if progress:
            figures = ", ".join(f"{name} {value:.4f}" for name, value in report.items())
            tqdm.write(f"epoch {epoch}/{options.epochs}: {figures}")
        if best is None or not options.keep_best or report["validation_kl"] < best[0]:
            weights = {name: value.clone() for name, value in model.state_dict().items()}
            best = (report["validation_kl"], epoch, weights)
    assert best is not None
    model.load_state_dict(best[2])
    return TrainResult(model.eval(), history, best[1])


@torch.no_grad()
def validation_kl(
    model: TDESModel, batcher: Batcher, examples: Examples, batch_rounds: int = 256
) -> float:
    """Mean of KL(pi_tgt || pi_theta) over all accepted parents, in nats."""
    tally = _Tally()
    for rounds in torch.arange(len(examples)).split(batch_rounds):
        losses = batcher.losses(model, rounds)
        tally.add(losses.parts, losses.counts)
    return tally.means()["kl"]


class _Tally:
    """Means over examples of losses that came as means over batches."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, parts: dict[str, torch.Tensor], counts: dict[str, int]) -> None:
        for name, value in parts.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value.detach()) * counts[name]
            self._counts[name] = self._counts.get(name, 0) + counts[name]

    def means(self) -> dict[str, float]:
        return {name: total / max(1, self._counts[name]) for name, total in self._sums.items()}
