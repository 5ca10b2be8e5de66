"""The same weights agree in every type; other weights and other shapes do not."""

from __future__ import annotations

import pytest
import torch

from graft_sglang.fingerprint import SAMPLED_ROWS, fingerprint_embedding


def weights(rows: int = 1000) -> torch.Tensor:
    return torch.randn(rows, 16, generator=torch.Generator().manual_seed(0))


def test_types_agree() -> None:
    stored = weights().bfloat16()
    assert fingerprint_embedding(stored) == fingerprint_embedding(stored.float())
    assert fingerprint_embedding(weights()) == fingerprint_embedding(weights().bfloat16())
    assert fingerprint_embedding(weights()) == fingerprint_embedding(weights().T.contiguous().T)


def test_others_differ() -> None:
    base = fingerprint_embedding(weights())
    other = weights()
    other[SAMPLED_ROWS // 2 * 1000 // SAMPLED_ROWS, 3] += 0.5
    assert fingerprint_embedding(other) != base
    assert fingerprint_embedding(weights()[:999]) != base
    assert fingerprint_embedding(weights()[:, :15]) != base


def test_small_vocabularies() -> None:
    assert fingerprint_embedding(weights(3)) != fingerprint_embedding(weights(2))


def test_what_is_no_embedding() -> None:
    with pytest.raises(ValueError, match="must be"):
        fingerprint_embedding(torch.zeros(4))
