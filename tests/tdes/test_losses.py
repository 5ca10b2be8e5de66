"""Losses: against NumPy written from the equations, and their gradients numerically."""

from __future__ import annotations

import numpy as np
import torch

from graft_sglang.scorers.tdes.losses import (
    LossWeights,
    bce_loss,
    kl_loss,
    pair_loss,
    total_loss,
)
from graft_sglang.scorers.tdes.model import TDESModel


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_values() -> None:
    f, log_q, z = rand(5, 7), rand(5, 7, seed=1), rand(5, 7, seed=2)
    target, model = softmax(z.numpy()), softmax((log_q + f).numpy())
    expected = (target * np.log(target / model)).sum(-1).mean()
    np.testing.assert_allclose(float(kl_loss(f, log_q, z)), expected, rtol=1e-12)

    plus, minus = rand(9).numpy(), rand(9, seed=1).numpy()
    expected = np.log(1 + np.exp(0.7 - plus + minus)).mean()
    found = pair_loss(torch.from_numpy(plus), torch.from_numpy(minus), 0.7)
    np.testing.assert_allclose(float(found), expected, rtol=1e-12)

    y = (rand(9, seed=3).numpy() > 0).astype(float)
    expected = -(4.0 * y * np.log(sigmoid(plus)) + (1 - y) * np.log(1 - sigmoid(plus))).mean()
    found = bce_loss(torch.from_numpy(plus), torch.from_numpy(y), 4.0)
    np.testing.assert_allclose(float(found), expected, rtol=1e-12)

    parts = torch.tensor(2.0), torch.tensor(3.0), torch.tensor(8.0)
    assert float(total_loss(*parts, LossWeights())) == 2 + 3 + 0.25 * 8


def test_gradients() -> None:
    f = rand(3, 4).requires_grad_()
    log_q, z = rand(3, 4, seed=1), rand(3, 4, seed=2)
    assert torch.autograd.gradcheck(lambda x: kl_loss(x, log_q, z), f)
    plus, minus = rand(5).requires_grad_(), rand(5, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: pair_loss(a, b, 1.0), (plus, minus))
    y = torch.tensor([1.0, 0, 0, 1, 0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: bce_loss(x, y, 3.0), plus)


def test_gradients_reach_every_parameter_of_the_model() -> None:
    model = TDESModel(5, 3, 4).double()
    names = list(dict(model.named_parameters()))
    values = [
        rand(*p.shape, seed=i).mul(0.5).detach().requires_grad_()
        for i, p in enumerate(model.parameters(), start=20)
    ]
    e_parent, e_child = rand(6, 1, 5), rand(6, 4, 5, seed=1)
    levels = torch.tensor([0, 1, 2, 0, 1, 2])[:, None]
    log_q, z = rand(6, 4, seed=2), rand(6, 4, seed=3)
    labels = (rand(6, 4, seed=4) > 0).double()

    def score(*parameters: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, parameters, strict=True))
        parents = e_parent @ given["g_parent.weight"].T
        children = e_child @ given["g_child.weight"].T
        return torch.func.functional_call(
            _Scored(model), _prefixed(given), (parents, children, levels)
        )

    def loss(*parameters: torch.Tensor) -> torch.Tensor:
        f = score(*parameters)
        pair = pair_loss(f[:, 0], f[:, 1])
        return total_loss(kl_loss(f, log_q, z), pair, bce_loss(f, labels, 2.0), LossWeights())

    assert torch.autograd.gradcheck(loss, tuple(values))
    for gradient in torch.autograd.grad(loss(*values), values):
        assert gradient.abs().sum() > 0


class _Scored(torch.nn.Module):
    """Makes ``score_projected`` the forward pass, as ``functional_call`` wants it."""

    def __init__(self, model: TDESModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model.score_projected(*inputs)


def _prefixed(given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"model.{name}": value for name, value in given.items()}
