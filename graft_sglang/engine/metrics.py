"""What the served rounds cost and brought: a log line now and then, Prometheus where enabled."""

from __future__ import annotations

import logging
from collections import Counter

import numpy as np

from graft_sglang.traces import STAGES

logger = logging.getLogger(__name__)

FORWARDS = ("draft", "verify")
"""Stages that hold a model's forward."""
BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Upper bounds of the exported histogram of nodes."""


class RoundMetrics:
    """Counts nodes and tokens of every request's round, and the time of each stage.

    A log line sums up the last ``log_rounds`` rounds of the worker. With ``prometheus`` the same
    is exported beside SGLang's own metrics: histogram ``graft:nodes``, counters
    ``graft:committed_tokens`` and ``graft:stage_seconds`` (label ``stage``).
    """

    def __init__(self, log_rounds: int, prometheus: bool) -> None:
        self._log_rounds = max(1, log_rounds)
        self._exporter = _Exporter() if prometheus else None
        self._clear()

    def add(self, nodes: list[int], committed: list[int], seconds: np.ndarray) -> None:
        """One verified round of a batch.

        Args:
            nodes: of each request's tree, the root not counted.
            committed: tokens of each request, the target's own next token included.
            seconds: float32 [len(STAGES)], for the whole batch, NaN where a stage did not run.
        """
        self._rounds += 1
        self._nodes.update(nodes)
        self._committed += sum(committed)
        self._seconds += np.nan_to_num(seconds)
        if self._exporter is not None:
            self._exporter.add(nodes, committed, seconds)
        if self._rounds == self._log_rounds:
            logger.info("GRAFT: %s", self.summary())
            self._clear()

    def summary(self) -> str:
        """Of the rounds since the last line: nodes, accept length, time by stage."""
        requests = self._nodes.total()
        if not requests:
            return "no round yet"
        mean = sum(nodes * count for nodes, count in self._nodes.items()) / requests
        common = sorted(self._nodes.most_common(6))
        shares = ", ".join(f"{nodes}: {100 * count / requests:.0f}%" for nodes, count in common)
        total = float(self._seconds.sum())
        forwards = sum(self._seconds[STAGES.index(stage)] for stage in FORWARDS)
        return (
            f"nodes a round {mean:.1f} ({shares}), accept length "
            f"{self._committed / requests:.2f}, round {1e3 * total / self._rounds:.1f} ms of which "
            f"{100 * forwards / total if total else 0:.0f}% in draft and verify"
        )

    def _clear(self) -> None:
        self._rounds = 0
        self._committed = 0
        self._nodes: Counter[int] = Counter()
        self._seconds = np.zeros(len(STAGES))


class _Exporter:
    """Prometheus metrics of this process; SGLang's server collects them from all of its own."""

    def __init__(self) -> None:
        # Imported late: the client reads where to share its values when it is imported.
        from prometheus_client import Counter as Total
        from prometheus_client import Histogram

        self._nodes = Histogram(
            "graft:nodes", "Nodes of a draft tree, root excluded", buckets=BUCKETS
        )
        self._committed = Total("graft:committed_tokens", "Tokens committed by verified rounds")
        self._stages = Total("graft:stage_seconds", "Wall time of a round's stages", ["stage"])

    def add(self, nodes: list[int], committed: list[int], seconds: np.ndarray) -> None:
        for count in nodes:
            self._nodes.observe(count)
        self._committed.inc(sum(committed))
        for stage, spent in zip(STAGES, seconds.tolist(), strict=True):
            if spent > 0:
                self._stages.labels(stage).inc(spent)
