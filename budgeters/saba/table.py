"""``saba_table``: SABA with the gain and the cost as measured, instead of two curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graft_sglang.budgeters.saba.adaptive import (
    PROBE_FITTED,
    AdaptivePolicy,
    Prediction,
    probe_interval,
)
from graft_sglang.budgeters.saba.document import SabaDocument
from graft_sglang.budgeters.saba.serving import fitted_for, online_option
from graft_sglang.contracts import ComponentContext, DecodingState


class SabaTablePolicy(AdaptivePolicy):
    """B_t = argmax over the grid of (1 + gain(B)) / C(B): expected tokens a second.

    The gain is the table of a(B) - 1 by state, the cost the table of measured medians; both are
    corrected online unless ``saba_online`` says no. Budget 0 is chosen where the grid holds it
    and no tree pays.
    """

    def __init__(
        self,
        document: SabaDocument,
        grid: Sequence[int] | None = None,
        online: bool = True,
        probe_every: int = PROBE_FITTED,
    ) -> None:
        super().__init__(
            grid or document.grid,
            document.cost_table,
            document.state_mean[2],
            document.fallback_budget,
            online,
            gain_cells=len(document.gain_table.centres),
            probe_every=probe_every,
        )
        self._table = document.gain_table.on_grid(self._widths)
        self._table.gain(np.zeros((1, 3)))  # compiles, so that no request waits for it

    @classmethod
    def from_context(cls, context: ComponentContext) -> SabaTablePolicy:
        """Take the file from the option ``saba_path``, ``saba_online`` where given.

        Raises:
            ValueError: the file is missing, corrupt or made for something else.
        """
        fitted = fitted_for(context, "saba_table")
        online = online_option(context.options, True)
        return cls(fitted.document, fitted.grid, online, probe_interval(fitted.elsewhere))

    def _predict(self, states: np.ndarray, state: DecodingState) -> Prediction:
        cells, gains = self._table.place_and_gain(states)
        return self._tokens(gains, cells)
