"""Another number of nodes every round, over a whole grid: for measuring what rounds cost."""

from __future__ import annotations

import numpy as np
import torch

from graft_sglang.budgeters.grid import steps_to
from graft_sglang.contracts import BudgetPolicy, ComponentContext, DecodingState

DEFAULT_TOP = 128
SEED = 0


class SweepBudget(BudgetPolicy):
    """Goes through the grid in a new random order again and again; a batch shares its budget.

    Neighbouring rounds of one request see different budgets, so that neither the text nor the
    machine's drift is taken for the budget's effect.

    Raises:
        ValueError: the largest budget is below 1.
    """

    def __init__(self, top: int) -> None:
        if top < 1:
            raise ValueError(f"A sweep needs a largest budget of at least 1, not {top}.")
        self._grid = np.array(steps_to(top))
        self._rng = np.random.default_rng(SEED)
        self._left: list[int] = []

    @classmethod
    def from_context(cls, context: ComponentContext) -> SweepBudget:
        """End the grid at the option ``max_budget``, else at ``DEFAULT_TOP``."""
        return cls(context.options["max_budget"] or min(DEFAULT_TOP, context.max_budget))

    @property
    def max_budget(self) -> int:
        return int(self._grid[-1])

    def select(self, state: DecodingState) -> torch.Tensor:
        if not self._left:
            self._left = self._rng.permutation(self._grid).tolist()
        return torch.full((len(state.prefix_lens),), self._left.pop(), dtype=torch.int64)
