"""What the adaptive policies share: grid, joint decision, corrections, run-time fallback."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from graft_sglang.budgeters.saba.cost import CostCurve, CostModel, batch_curve
from graft_sglang.budgeters.saba.gain import state_vectors
from graft_sglang.budgeters.saba.joint import decide
from graft_sglang.budgeters.saba.online import CostCorrection, GainCorrection, width_cells
from graft_sglang.contracts import MAX_BUDGET, BudgetPolicy, DecodingState, RoundOutcome

logger = logging.getLogger(__name__)

PROBE_UNKNOWN = 32
"""Where the costs of this machine were not fitted, one round in that many tries another budget."""
PROBE_FITTED = 256
"""The same where they were: only a load that changes the curve's shape is looked for."""
PROBE_REACH = 4
"""Budgets tried are within that factor of the chosen one."""
CURVES = 256
"""Batch sizes whose cost curves are kept."""
SMALLEST_COST_S = 1e-9
"""Floor of a predicted cost, seconds: a fitted line may cross zero outside its data."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a policy expects of each request at each budget of its grid."""

    values: np.ndarray
    """float64 [bs, m]: what is summed over the batch and divided by its cost."""
    gains: np.ndarray | None = None
    """float64 [bs, m]: uncorrected a(B) - 1, where the policy predicts tokens."""
    cells: np.ndarray | None = None
    """int64 [bs]: cell of the gain correction."""


class AdaptivePolicy(BudgetPolicy):
    """Maximises (sum of predicted values) / (cost of the padded batch) over a grid of budgets.

    A request whose prediction is not finite (NaN in its state or scores) gets the fallback
    budget; that is logged once. ``choices`` counts the budgets chosen so far. With
    ``probe_every`` n > 0, every n-th round verifies the nearby budget tried longest ago instead:
    the cost of a width is learnt only from rounds of about that width.

    Raises:
        ValueError: an empty grid, or budgets outside 0..``MAX_BUDGET``.
    """

    def __init__(
        self,
        grid: Sequence[int],
        cost: CostModel,
        mean_history: float,
        fallback: int,
        online: bool,
        gain_cells: int = 0,
        probe_every: int = 0,
    ) -> None:
        checked = sorted(set(grid))
        if not checked or checked[0] < 0 or checked[-1] > MAX_BUDGET or checked[-1] == 0:
            raise ValueError(
                f"The budget grid must hold whole numbers from 0 to {MAX_BUDGET}, at least one of "
                f"them positive, not {list(grid)}."
            )
        self.grid = np.array(checked, np.int64)
        self.choices = np.zeros(len(checked), np.int64)
        self._widths = self.grid.astype(np.float64)
        self._cost = cost
        self._mean_history = mean_history
        self._fallback = int(np.argmin(np.abs(self.grid - fallback)))
        self._cost_correction = CostCorrection() if online else None
        self._gain_correction = GainCorrection(gain_cells) if online and gain_cells else None
        self._curves: dict[int, tuple[CostCurve, np.ndarray]] = {}
        self._probe_every = probe_every if online else 0
        self._round = 0
        self._tried = np.full(len(checked), -1, np.int64)
        self._last: tuple[np.ndarray, Prediction] | None = None
        self._warned = False

    @property
    def max_budget(self) -> int:
        return int(self.grid[-1])

    def select(self, state: DecodingState) -> torch.Tensor:
        batch_size = len(state.prefix_lens)
        if batch_size == 0:
            return torch.zeros(0, dtype=torch.int64)
        prediction = self._predict(state_vectors(state, self._mean_history), state)
        curve, cells = self._curve(batch_size)
        costs = curve.seconds(sum(state.prefix_lens.tolist()) / batch_size)
        if self._cost_correction is not None:
            costs = costs * self._cost_correction.factors(cells, batch_size)
        chosen = self._decide(prediction.values, np.maximum(costs, SMALLEST_COST_S))
        self._round += 1
        places = chosen.tolist()
        if self._probe_every and self._round % self._probe_every == 0:
            places = [self._probe(max(places))] * batch_size
            chosen = np.array(places)
        self._tried[max(places)] = self._round
        for place in places:
            self.choices[place] += 1
        self._last = (chosen, prediction)
        return torch.from_numpy(self.grid[chosen])

    def observe(self, outcome: RoundOutcome) -> None:
        last, self._last = self._last, None
        budgets = outcome.budgets.tolist()
        batch_size = len(budgets)
        if batch_size == 0:
            return
        if self._cost_correction is not None:
            width = max(budgets)
            place = int(self.grid.searchsorted(width))
            if place < len(self.grid) and self.grid[place] == width:
                prefix_len = sum(outcome.prefix_lens.tolist()) / batch_size
                curve, cells = self._curve(batch_size)
                predicted = float(curve.seconds(prefix_len)[place])
                cell = int(cells[place])
                self._cost_correction.observe(cell, batch_size, predicted, outcome.latency_s)
        if self._gain_correction is None or last is None:
            return
        chosen, prediction = last
        if prediction.gains is None or prediction.cells is None:
            return
        # The worker may have cut a budget to its buffers: that row then says nothing of the grid's.
        for row, (budget, committed) in enumerate(
            zip(budgets, outcome.committed.tolist(), strict=True)
        ):
            if row < len(chosen) and self.grid[chosen[row]] == budget:
                self._gain_correction.observe(
                    int(prediction.cells[row]),
                    float(prediction.gains[row, chosen[row]]),
                    committed - 1.0,
                )

    @abstractmethod
    def _predict(self, states: np.ndarray, state: DecodingState) -> Prediction:
        """Values at every budget of the grid, from s_t (float64 [bs, 3]) or more of the state."""

    def _probe(self, best: int) -> int:
        """Index of the budget tried longest ago among those near the best one's."""
        budgets = np.maximum(self._widths, 1.0)
        near = (budgets * PROBE_REACH >= budgets[best]) & (budgets <= PROBE_REACH * budgets[best])
        return int(np.argmin(np.where(near, self._tried, self._round)))

    def _tokens(self, gains: np.ndarray, cells: np.ndarray) -> Prediction:
        """Values 1 + gain, corrected by what was accepted lately; a(0) = 1."""
        if self._gain_correction is None:
            return Prediction(1.0 + gains, gains, cells)
        factors = self._gain_correction.factors(cells)
        return Prediction(1.0 + gains * factors[:, None], gains, cells)

    def _curve(self, batch_size: int) -> tuple[CostCurve, np.ndarray]:
        """Costs over the grid, and the cells of the cost correction, for a batch size."""
        known = self._curves.get(batch_size)
        if known is None:
            if len(self._curves) >= CURVES:
                self._curves.clear()
            curve = batch_curve(self._cost, self._widths, batch_size)
            known = self._curves[batch_size] = (curve, width_cells(self._widths, batch_size))
        return known

    def _decide(self, values: np.ndarray, costs: np.ndarray) -> np.ndarray:
        chosen, utility = decide(values, costs)
        if math.isfinite(utility):
            return chosen
        if not self._warned:
            self._warned = True
            logger.warning(
                "GRAFT: a decoding state or cost is not a number; such requests get the fallback "
                "budget %d (said once).",
                self.grid[self._fallback],
            )
        usable = np.isfinite(values).all(axis=1) & np.isfinite(costs).all()
        chosen = np.full(len(values), self._fallback)
        if usable.any():
            chosen[usable] = decide(values[usable], costs)[0]
        return chosen


def probe_interval(elsewhere: bool) -> int:
    """``probe_every`` of a policy whose file was fitted ``elsewhere`` than on this machine."""
    return PROBE_UNKNOWN if elsewhere else PROBE_FITTED
