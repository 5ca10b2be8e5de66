"""Candidates from the target's head, whole and sharded over ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graft_sglang.engine.marginals import (
    _local_top,
    candidates_from_logits,
    head_logits,
    merge_shards,
)

BS, DEPTH, WIDTH, VOCABULARY, K = 3, 5, 16, 101, 7


@pytest.fixture
def hidden() -> torch.Tensor:
    return torch.randn(BS, DEPTH, WIDTH, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.randn(VOCABULARY, WIDTH, generator=torch.Generator().manual_seed(4))


def shard(weight: torch.Tensor, first: int, last: int, padded: int) -> SimpleNamespace:
    """Rows first..last of a head, padded with rows that are no tokens and score high."""
    rows = torch.full((padded, weight.shape[1]), 50.0)
    rows[: last - first] = weight[first:last]
    return SimpleNamespace(
        weight=rows,
        shard_indices=SimpleNamespace(
            num_org_elements=last - first,
            num_org_elements_padded=padded,
            org_vocab_start_index=first,
            num_added_elements=0,
        ),
    )


class Ranks:
    """A tensor-parallel group seen from one rank: the others' parts are computed beforehand."""

    world_size = 2

    def __init__(self, others: list[torch.Tensor]) -> None:
        self._others = others

    def all_gather(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        return torch.cat([tensor, self._others.pop(0)], dim=dim)


def expected(hidden: torch.Tensor, weight: torch.Tensor) -> Any:
    log_probs = torch.log_softmax(hidden @ weight.T, dim=-1)
    return log_probs.topk(K, dim=-1)


def test_log_softmax_over_the_full_vocabulary(hidden: torch.Tensor, weight: torch.Tensor) -> None:
    head = shard(weight, 0, VOCABULARY, 128)
    found = candidates_from_logits(hidden, head_logits(hidden, head), torch.arange(BS), K)
    values, ids = expected(hidden, weight)
    assert torch.equal(found.token_ids, ids)
    torch.testing.assert_close(found.log_probs, values)
    pairs = torch.cosine_similarity(hidden[:, 1], hidden[:, 2], dim=-1)
    torch.testing.assert_close(found.hidden_cosines[:, 1], pairs)


def test_two_shards_equal_the_whole(hidden: torch.Tensor, weight: torch.Tensor) -> None:
    """Shard-local ids must become token ids (sglang 29907)."""
    left, right = shard(weight, 0, 60, 64), shard(weight, 60, VOCABULARY, 64)
    other = list(_local_top(*head_logits(hidden, right), K))
    found = candidates_from_logits(
        hidden, head_logits(hidden, left), torch.arange(BS), K, Ranks(other)
    )
    values, ids = expected(hidden, weight)
    assert torch.equal(found.token_ids, ids)
    torch.testing.assert_close(found.log_probs, values)


def test_merge_takes_the_best_of_all_shards() -> None:
    one = (torch.tensor([[3.0, 1.0]]), torch.tensor([[10, 11]]), torch.tensor([[3.2]]))
    two = (torch.tensor([[2.0, 1.5]]), torch.tensor([[70, 71]]), torch.tensor([[2.5]]))
    ids, log_probs = merge_shards([one, two], 3)
    assert ids.tolist() == [[10, 70, 71]]
    total = torch.logsumexp(torch.tensor([3.2, 2.5]), 0)
    torch.testing.assert_close(log_probs, torch.tensor([[3.0, 2.0, 1.5]]) - total)
