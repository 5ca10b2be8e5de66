"""``expected_throughput``: grow the tree while expected tokens a second still rise.

The idea is CaDDTree's (arXiv 2606.01813): a tree's own path probabilities say what it is expected
to bring, so no gain has to be fitted. A fitted file adds a measured cost and a calibration of
those probabilities; without one the cost's shape is learnt from the served rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from graft_sglang.budgeters.grid import steps_to
from graft_sglang.budgeters.saba.adaptive import (
    PROBE_FITTED,
    PROBE_UNKNOWN,
    AdaptivePolicy,
    Prediction,
    probe_interval,
)
from graft_sglang.budgeters.saba.cost import AffineCost, CostModel
from graft_sglang.budgeters.saba.document import SabaDocument
from graft_sglang.budgeters.saba.gain import Calibration
from graft_sglang.budgeters.saba.path_mass import expected_tokens
from graft_sglang.budgeters.saba.serving import fitted_for, online_option
from graft_sglang.contracts import ComponentContext, DecodingState
from graft_sglang.tree.best_first import BestFirstTreeBuilder

DEFAULT_TOP = 256
"""Largest tree without a fitted file and without ``--graft-max-budget``: it sizes KV reserves."""
DEFAULT_COST = AffineCost(1.0, 1.0 / 256, 0.0)
"""Cost without a fitted file, up to a factor: 256 nodes double a round. Only its shape matters."""
DEFAULT_HISTORY = 2.0
"""hist_t without history and without a file; only a calibration reads it."""
CELLS = 8
"""Cells of the gain correction, by conf_t."""


class ExpectedThroughputPolicy(AdaptivePolicy):
    """B_t = argmax over the grid of (1 + e(B)) / C(B), e(B) the summed path probabilities.

    The whole grid is searched: with a staircase of a cost the first budget at which the ratio
    stops rising need not be the best one. Without a tree (budget 0) a round brings one token.
    """

    def __init__(
        self,
        grid: Sequence[int],
        cost: CostModel | None = None,
        calibration: Calibration | None = None,
        fallback: int = 64,
        mean_history: float = DEFAULT_HISTORY,
        online: bool = True,
        probe_every: int = PROBE_UNKNOWN,
    ) -> None:
        super().__init__(
            grid, cost or DEFAULT_COST, mean_history, fallback, online, CELLS, probe_every
        )
        self._calibration = calibration.on_grid(self._widths) if calibration else None
        self._builder = BestFirstTreeBuilder(recycle=True)

    @classmethod
    def from_document(
        cls,
        document: SabaDocument,
        grid: Sequence[int] | None = None,
        online: bool = True,
        probe_every: int = PROBE_FITTED,
    ) -> ExpectedThroughputPolicy:
        """Cost and calibration of a fitted file."""
        return cls(
            grid or document.grid,
            document.cost_table,
            document.calibration,
            document.fallback_budget,
            document.state_mean[2],
            online,
            probe_every,
        )

    @classmethod
    def from_context(cls, context: ComponentContext) -> ExpectedThroughputPolicy:
        """Use the file of the option ``saba_path`` if there is one; ``budget`` is the fallback.

        Without a file the grid ends at ``max_budget``, ``DEFAULT_TOP`` where that is not set.

        Raises:
            ValueError: the file is corrupt or made for something else.
        """
        options = context.options
        online = online_option(options, True)
        if options.get("saba_path"):
            fitted = fitted_for(context, "expected_throughput")
            every = probe_interval(fitted.elsewhere)
            return cls.from_document(fitted.document, fitted.grid, online, every)
        top = min(context.max_budget, options.get("max_budget") or DEFAULT_TOP)
        return cls(
            steps_to(top),
            fallback=options.get("budget") or top,
            online=online,
        )

    def _predict(self, states: np.ndarray, state: DecodingState) -> Prediction:
        batch_size = len(states)
        cells = np.fmin(CELLS * np.fmax(states[:, 0], 0.0), CELLS - 1).astype(np.int64)
        tops = torch.full((batch_size,), self.max_budget, dtype=torch.int64)
        try:
            tree = self._builder.build(state.candidates, state.scores, tops)
        except ValueError:  # NaN or +inf scores
            return Prediction(np.full((batch_size, len(self.grid)), np.nan))
        gains = expected_tokens(tree, self.grid)
        if self._calibration is not None:
            gains = self._calibration.gain(gains, states)
        return self._tokens(gains, cells)
