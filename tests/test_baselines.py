"""The scorer and the policy that need no training, and that the method needs no engine."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from graft_sglang.budgeters.fixed import FixedBudget
from graft_sglang.contracts import (
    MAX_BUDGET,
    ComponentContext,
    DecodingState,
    DraftCandidates,
)
from graft_sglang.scorers.ddtree import DDTreeScorer


def context(**options) -> ComponentContext:
    return ComponentContext(15, 32, MAX_BUDGET, 100, torch.device("cpu"), options)


def candidates(batch_size: int = 3) -> DraftCandidates:
    log_probs, token_ids = torch.randn(batch_size, 4, 9).log_softmax(-1).topk(5)
    root = torch.zeros(batch_size, dtype=torch.int64)
    return DraftCandidates(root, token_ids, log_probs, torch.zeros(batch_size, 3))


def test_ddtree_scores_are_the_log_probabilities_uncopied() -> None:
    """Eq. 3."""
    given = candidates()
    values = DDTreeScorer.from_context(context()).score(given).values
    assert values.shape == (3, 4, 1, 5)
    assert values[:, :, 0].equal(given.log_probs)
    assert values.data_ptr() == given.log_probs.data_ptr()


@pytest.mark.parametrize("budget", [1, 64, MAX_BUDGET])
def test_the_fixed_budget_is_every_requests(budget) -> None:
    policy = FixedBudget.from_context(context(budget=budget))
    given = candidates()
    state = DecodingState(
        confidence=given.top1_probs.mean(1),
        degeneration=torch.zeros(3),
        history=torch.full((3,), torch.nan),
        prefix_lens=torch.tensor([4, 5, 6]),
        candidates=given,
        scores=DDTreeScorer().score(given),
    )
    assert policy.max_budget == budget
    selected = policy.select(state)
    assert selected.dtype == torch.int64
    assert selected.tolist() == [budget] * 3


@pytest.mark.parametrize("budget", [0, -3, MAX_BUDGET + 1, 2.5, "64"])
def test_a_fixed_budget_out_of_range_is_refused(budget) -> None:
    with pytest.raises(ValueError, match=f"whole number from 1 to {MAX_BUDGET}, not {budget!r}"):
        FixedBudget.from_context(context(budget=budget))


def test_the_method_imports_no_engine() -> None:
    """Trees, scorers, budgets and registries never reach sglang, even indirectly."""
    script = """
import sys
import graft_sglang.registry as parts
import graft_sglang.tree.warmup, graft_sglang.benchmarks.tree
for registry in (parts.edge_scorers, parts.budget_policies, parts.tree_builders):
    for name in registry.names():
        registry.get(name)
print(sorted(name for name in sys.modules if name.split(".")[0] == "sglang"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
