"""The same number of nodes every round."""

from __future__ import annotations

import torch

from graft_sglang.contracts import MAX_BUDGET, BudgetPolicy, ComponentContext, DecodingState


class FixedBudget(BudgetPolicy):
    """B_t = B.

    Raises:
        ValueError: B is not a whole number from 1 to ``MAX_BUDGET``.
    """

    def __init__(self, budget: int) -> None:
        if not isinstance(budget, int) or not 1 <= budget <= MAX_BUDGET:
            raise ValueError(
                f"The fixed budget must be a whole number from 1 to {MAX_BUDGET}, not {budget!r}."
            )
        self._budget = budget

    @classmethod
    def from_context(cls, context: ComponentContext) -> FixedBudget:
        """Take B from the option ``budget``."""
        return cls(context.options["budget"])

    @property
    def max_budget(self) -> int:
        return self._budget

    def select(self, state: DecodingState) -> torch.Tensor:
        return torch.full((len(state.prefix_lens),), self._budget, dtype=torch.int64)
