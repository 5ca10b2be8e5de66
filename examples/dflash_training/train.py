"""A small resumable training loop: fixed steps, per-step seeds, a progress bar with time left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from .optim import schedule

StepFn = Callable[[int, torch.Generator], tuple[Tensor, dict[str, float]]]
AfterStepFn = Callable[[int], None]


@dataclass(frozen=True)
class LoopConfig:
    """How long and how fast to train; everything random derives from ``seed`` and the step."""

    steps: int
    lr: float
    warmup: int
    seed: int
    clip: float = 1.0
    checkpoint_every: int = 50
    stable: float = 0.0
    """Share of the steps at the peak rate, before it falls."""


def _save(path: Path, step: int, model: nn.Module, optimizers: list, log: list) -> None:
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimizers": [o.state_dict() for o in optimizers],
        "log": log,
    }
    temporary = path.with_suffix(".tmp")
    torch.save(state, temporary)
    os.replace(temporary, path)


def run_loop(
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    step_fn: StepFn,
    cfg: LoopConfig,
    checkpoint: Path,
    label: str,
    after_step: AfterStepFn | None = None,
) -> list[dict[str, float]]:
    """Train until ``cfg.steps``, resuming from ``checkpoint`` if it is there; returns the log.

    ``step_fn(step, generator)`` returns the loss to minimise and figures to log. Its generator is
    seeded by (seed, step), so a resumed run sees the same batches as an uninterrupted one.
    """
    first, log = 0, []
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        first, log = state["step"], state["log"]
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    bar = tqdm(range(first, cfg.steps), initial=first, total=cfg.steps, desc=label, mininterval=5)
    started = time.monotonic()
    for step in bar:
        rate = cfg.lr * schedule(step, cfg.steps, cfg.warmup, cfg.stable)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
        generator = torch.Generator().manual_seed(cfg.seed * 1_000_003 + step)
        loss, figures = step_fn(step, generator)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        log.append({"step": step, "loss": loss.item(), **figures})
        bar.set_postfix({k: f"{v:.3f}" for k, v in log[-1].items() if k != "step"})
        if (step + 1) % cfg.checkpoint_every == 0 or step + 1 == cfg.steps:
            _save(checkpoint, step + 1, model, optimizers, log)
            if after_step is not None:
                after_step(step + 1)
    log.append({"step": cfg.steps, "seconds": time.monotonic() - started})
    return log
