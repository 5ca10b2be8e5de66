"""The sweep visits every budget equally often, in no fixed order."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graft_sglang.budgeters.sweep import SweepBudget


def state(batch_size: int) -> Any:
    return SimpleNamespace(prefix_lens=torch.zeros(batch_size, dtype=torch.int64))


def test_every_budget_equally_often() -> None:
    policy = SweepBudget(20)
    assert policy.max_budget == 20
    drawn = [int(policy.select(state(1))) for _ in range(10 * 30)]
    assert Counter(drawn) == dict.fromkeys((0, 1, 2, 3, 4, 6, 8, 11, 16, 20), 30)
    assert drawn[:10] != drawn[10:20]


def test_a_batch_shares_its_budget() -> None:
    budgets = SweepBudget(64).select(state(5))
    assert budgets.dtype == torch.int64
    assert budgets.tolist() == [int(budgets[0])] * 5


def test_a_top_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        SweepBudget(0)
