"""Wall time of a round's stages, as the host sees them."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from graft_sglang.traces.record import STAGES


class StageClock:
    """Started at a round's begin; ``end(stage)`` books the time since the last call.

    On a GPU the forwards run on while the host goes on: their time then shows where the host
    waits for them.
    """

    def __init__(self) -> None:
        self.seconds = np.full(len(STAGES), np.nan, np.float32)
        """float32 [len(STAGES)], NaN for a stage that has not ended."""
        self._started = self._last = perf_counter()

    def end(self, stage: str) -> None:
        """Book the time since the stage before ended."""
        now = perf_counter()
        self.seconds[STAGES.index(stage)] = now - self._last
        self._last = now

    @property
    def total(self) -> float:
        """Seconds from the start to the last stage that ended."""
        return self._last - self._started
