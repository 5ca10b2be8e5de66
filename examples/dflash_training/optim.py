"""Muon for matrices, AdamW for the rest, and one learning-rate schedule for both."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

# Quintic Newton-Schulz coefficients that push singular values towards one in a few steps.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalise(matrix: Tensor, steps: int = 5) -> Tensor:
    """Nearest semi-orthogonal matrix of a float32 [m, n] matrix, by Newton-Schulz in float32."""
    a, b, c = NEWTON_SCHULZ
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised; the update's RMS matches AdamW's, so one rate fits both.

    Computed in float32: bfloat16 products are slow on CPUs without matrix units.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        steps: int = 5,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": steps}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                buffer = state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                nesterov = p.grad.lerp(buffer, group["momentum"])
                update = orthogonalise(nesterov, group["steps"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * 0.2 * math.sqrt(max(p.shape)))


def build_optimizers(
    model: nn.Module, lr: float, weight_decay: float = 0.0, muon_steps: int = 5
) -> list[torch.optim.Optimizer]:
    """Muon on hidden matrices, AdamW on embeddings, heads and norms."""
    matrices, rest = [], []
    for name, p in model.named_parameters():
        hidden = p.ndim == 2 and "embed" not in name and "lm_head" not in name
        (matrices if hidden else rest).append(p)
    return [
        Muon(matrices, lr, weight_decay=weight_decay, steps=muon_steps),
        torch.optim.AdamW(rest, lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def schedule(step: int, total: int, warmup: int, stable: float = 0.0, floor: float = 0.02) -> float:
    """Factor on the peak rate: linear warm-up, the peak for ``stable`` of the steps, a cosine.

    With a stable part a run can be prolonged: its checkpoints don't depend on ``total`` yet.
    """
    if step < warmup:
        return (step + 1) / warmup
    first = max(warmup, int(stable * total))
    if step < first:
        return 1.0
    progress = (step - first) / max(1, total - first)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))
