"""Tensors that travel together arrive as they left."""

from __future__ import annotations

import pytest
import torch

from graft_sglang.contracts import DraftCandidates
from graft_sglang.transfer import candidates_on, copy_together, pack, unpack

TENSORS = (
    torch.arange(7),
    torch.randn(3, 5)[:, ::2],
    torch.tensor([[True, False, True]]),
    torch.empty(2, 0, dtype=torch.float64),
    torch.randn(3, dtype=torch.float64),
    torch.tensor(5, dtype=torch.int32),
    torch.randn(2, 2).to(torch.bfloat16),
)


@pytest.mark.parametrize("count", range(1, len(TENSORS) + 1))
def test_packed_and_unpacked(count: int) -> None:
    given = TENSORS[:count]
    packed = pack(given)
    assert packed.dtype is torch.uint8
    for found, expected in zip(unpack(packed.clone(), given), given, strict=True):
        assert found.dtype is expected.dtype
        assert found.shape == expected.shape
        assert torch.equal(found, expected)


def test_nothing_is_copied_where_nothing_has_to_be() -> None:
    found = copy_together(TENSORS, "cpu")
    assert all(a is b for a, b in zip(found, TENSORS, strict=True))


def test_one_copy_to_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = []
    original = torch.Tensor.to

    def counted(self, *args, **kwargs):
        copies.append(self.shape)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", counted)
    found = copy_together(TENSORS, "meta")
    assert len(copies) == 1
    assert all(tensor.device.type == "meta" for tensor in found)
    assert [tensor.shape for tensor in found] == [tensor.shape for tensor in TENSORS]


def test_candidates() -> None:
    given = DraftCandidates(
        torch.zeros(2, dtype=torch.int64),
        torch.ones(2, 3, 4, dtype=torch.int64),
        torch.randn(2, 3, 4),
        torch.randn(2, 2),
    )
    assert candidates_on(given, "cpu").log_probs is given.log_probs
    assert candidates_on(given, "meta").token_ids.shape == (2, 3, 4)
