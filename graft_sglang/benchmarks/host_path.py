"""What the worker runs between its two forwards, without an engine, to be timed."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import torch

from graft_sglang.components import Components
from graft_sglang.contracts import DraftCandidates
from graft_sglang.planning import plan_round
from graft_sglang.stages import StageClock
from graft_sglang.tree.verify_arrays import VerifyArraysMaker

PREFIX = 512
"""Committed tokens of each request: the mask's other side."""


@dataclass(frozen=True, slots=True)
class Passed:
    """One pass of the host path."""

    clock: StageClock
    arrays_s: float
    total_s: float


class HostPath:
    """What the worker runs between its forwards: score, state, budget, build, verify arrays."""

    def __init__(self, parts: Components, batch_size: int, budget: int, depth: int) -> None:
        """
        Args:
            budget: nodes of a tree, the root not counted.
            depth: D
        """
        self._parts, self._budget = parts, budget
        self._maker = VerifyArraysMaker()
        self._history = torch.full((batch_size,), 3.0)
        self._prefix_lens = torch.full((batch_size,), PREFIX)
        self._caps = torch.full((batch_size,), depth)

    def once(self, candidates: DraftCandidates) -> Passed:
        """Plan one batch and make its verify arrays."""
        began = perf_counter()
        clock = StageClock()
        plan = plan_round(
            self._parts, candidates, self._history, self._prefix_lens, self._caps, self._budget,
            clock,
        )  # fmt: skip
        planned = perf_counter()
        self._maker.make(plan.tree, self._prefix_lens)
        ended = perf_counter()
        return Passed(clock, ended - planned, ended - began)
