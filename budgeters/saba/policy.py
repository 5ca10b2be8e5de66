"""``saba``: the paper's rule, Equations 14 to 17."""

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
from graft_sglang.budgeters.saba.gain import saturation_gain
from graft_sglang.budgeters.saba.serving import fitted_for, online_option
from graft_sglang.contracts import ComponentContext, DecodingState


class SabaPolicy(AdaptivePolicy):
    """B_t = argmax over the grid of G(B) / C(B).

    G(0) = 0, so Eq. 14 never chooses budget 0, even where a grid holds it: ``saba_table`` and
    ``expected_throughput``, which count the token that a round brings without a tree, can.
    The paper keeps phi and c fixed, so the cost is corrected online only where the file was
    fitted on other hardware, or where asked for.
    """

    def __init__(
        self,
        document: SabaDocument,
        grid: Sequence[int] | None = None,
        online: bool = False,
        probe_every: int = PROBE_FITTED,
    ) -> None:
        super().__init__(
            grid or document.grid,
            document.cost,
            document.state_mean[2],
            document.fallback_budget,
            online,
            probe_every=probe_every,
        )
        self._phi = np.array(document.phi)

    @classmethod
    def from_context(cls, context: ComponentContext) -> SabaPolicy:
        """Take the file from the option ``saba_path``, ``saba_online`` where given.

        Raises:
            ValueError: the file is missing, corrupt or made for something else.
        """
        fitted = fitted_for(context, "saba")
        online = online_option(context.options, fitted.elsewhere)
        return cls(fitted.document, fitted.grid, online, probe_interval(fitted.elsewhere))

    def _predict(self, states: np.ndarray, state: DecodingState) -> Prediction:
        return Prediction(saturation_gain(self._widths, states, self._phi))
