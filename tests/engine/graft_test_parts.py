"""Parts that test servers load with ``--graft-import``: scripted budgets, an oracle.

Both read a file named in the environment at every round, so one server serves many tests.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from graft_sglang.contracts import BudgetPolicy, ComponentContext, DecodingState
from graft_sglang.registry import budget_policies


@budget_policies.register("scripted")
class ScriptedBudget(BudgetPolicy):
    """The JSON list in the file ``$GRAFT_TEST_BUDGETS``, cycled over rows and rounds."""

    def __init__(self, max_budget: int) -> None:
        self._max = max_budget
        self._round = 0

    @classmethod
    def from_context(cls, context: ComponentContext) -> ScriptedBudget:
        return cls(min(context.max_budget, 200))

    @property
    def max_budget(self) -> int:
        return self._max

    def select(self, state: DecodingState) -> torch.Tensor:
        script = json.loads(Path(os.environ["GRAFT_TEST_BUDGETS"]).read_text())
        rows = range(len(state.prefix_lens))
        self._round += 1
        return torch.tensor([script[(self._round + row) % len(script)] for row in rows])


def _oracle(worker: Any, batch: Any, candidates: Any) -> Any:
    """Put what a request will really say at a chosen rank of every depth."""
    path = Path(os.environ.get("GRAFT_TEST_ORACLE", "/nonexistent"))
    if not path.exists():
        return candidates
    script = json.loads(path.read_text())
    rank = script["rank"]
    token_ids, log_probs = candidates.token_ids.clone(), candidates.log_probs.clone()
    _, depth, k = token_ids.shape
    vocabulary = int(worker.model_runner.model_config.vocab_size)
    for row, req in enumerate(batch.reqs):
        truth = script["truth"].get(" ".join(map(str, req.origin_input_ids)))
        if truth is None:
            continue
        done = int(batch.seq_lens[row]) + 1 - len(req.origin_input_ids)
        for level in range(depth):
            token = truth[done + level] if done + level < len(truth) else 0
            others = [(token + 1 + j) % vocabulary for j in range(k - 1)]
            token_ids[row, level] = torch.tensor([*others[:rank], token, *others[rank:]])
            # The first rank + 1 candidates share almost all of the probability.
            log_probs[row, level] = -10.0 - torch.arange(k)
            log_probs[row, level, : rank + 1] = -math.log(rank + 1) - 1e-3 * torch.arange(
                1, rank + 2
            )
    return replace(candidates, token_ids=token_ids, log_probs=log_probs)


def _install_oracle() -> None:
    from graft_sglang.engine.worker import GraftWorker

    drafted = GraftWorker._draft

    def rigged(self: Any, current: Any) -> None:
        drafted(self, current)
        current.candidates = _oracle(self, current.batch, current.candidates)

    GraftWorker._draft = rigged  # type: ignore[method-assign]


if "GRAFT_TEST_ORACLE" in os.environ:
    _install_oracle()
