"""Scorer and policy that change while a server runs, so that methods are compared by turns.

A server started with ``--graft-import graft_sglang.benchmarks.switch --graft-edge-scorer switch
--graft-budget-policy switch`` reads the JSON file named by ``$GRAFT_SWITCH`` whenever it has
changed: options of ``GraftConfig`` (``edge_scorer``, ``beta``, ``budget_policy``, ``budget``) that
replace the server's own.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from graft_sglang.contracts import (
    BudgetPolicy,
    ComponentContext,
    DecodingState,
    DraftCandidates,
    EdgeScorer,
    EdgeScores,
    RoundOutcome,
)
from graft_sglang.registry import Registry, budget_policies, edge_scorers

VARIABLE = "GRAFT_SWITCH"
START = {"edge_scorer": "ddtree", "budget_policy": "fixed", "budget": 16}

Part = TypeVar("Part", EdgeScorer, BudgetPolicy)


class Switch(Generic[Part]):
    """The part that the file asks for; every part asked for so far is kept."""

    def __init__(self, kind: str, registry: Registry[Part], context: ComponentContext) -> None:
        self._kind, self._context = kind, context
        self._registry: Registry[Part] = registry
        self._path = Path(os.environ.get(VARIABLE, ""))
        self._changed = -1
        self._parts: dict[str, Part] = {}
        self._part: Part = self._find(START)

    def part(self) -> Part:
        """As the file says now."""
        try:
            changed = self._path.stat().st_mtime_ns
        except OSError:
            return self._part
        if changed != self._changed:
            self._changed = changed
            self._part = self._find(json.loads(self._path.read_text(encoding="utf-8")))
        return self._part

    def _find(self, options: dict[str, Any]) -> Part:
        key = json.dumps(options, sort_keys=True)
        if key not in self._parts:
            context = replace(self._context, options={**self._context.options, **options})
            self._parts[key] = self._registry.get(options[self._kind]).from_context(context)
        return self._parts[key]


@edge_scorers.register("switch")
class SwitchScorer(EdgeScorer):
    """Scores with the scorer that the file names."""

    def __init__(self, switch: Switch[EdgeScorer]) -> None:
        self._switch = switch

    @classmethod
    def from_context(cls, context: ComponentContext) -> SwitchScorer:
        return cls(Switch("edge_scorer", edge_scorers, context))

    def score(self, candidates: DraftCandidates) -> EdgeScores:
        return self._switch.part().score(candidates)


@budget_policies.register("switch")
class SwitchPolicy(BudgetPolicy):
    """Budgets of the policy that the file names."""

    def __init__(self, switch: Switch[BudgetPolicy], max_budget: int) -> None:
        self._switch, self._max_budget = switch, max_budget
        self._asked = switch.part()

    @classmethod
    def from_context(cls, context: ComponentContext) -> SwitchPolicy:
        return cls(Switch("budget_policy", budget_policies, context), context.max_budget)

    @property
    def max_budget(self) -> int:
        return self._max_budget

    def select(self, state: DecodingState) -> torch.Tensor:
        self._asked = self._switch.part()
        return self._asked.select(state)

    def observe(self, outcome: RoundOutcome) -> None:
        self._asked.observe(outcome)
