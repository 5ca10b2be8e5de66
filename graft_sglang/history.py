"""Accept lengths of each request's last rounds: hist_t of Eq. 15, kept across batches."""

from __future__ import annotations

from collections import OrderedDict, deque

import torch

WINDOW = 8
"""w: rounds that hist_t averages over."""

CAPACITY = 4096
"""Requests remembered; the one idle longest is forgotten first."""


class AcceptHistory:
    """Bounded memory of the tokens that each request's last rounds committed."""

    def __init__(self, window: int = WINDOW, capacity: int = CAPACITY) -> None:
        self._window = window
        self._capacity = capacity
        self._rounds: OrderedDict[str, deque[int]] = OrderedDict()

    def means(self, request_ids: list[str]) -> torch.Tensor:
        """float32 [bs]: mean of the last ``window`` rounds, NaN for a request without any."""
        means = torch.full((len(request_ids),), float("nan"))
        for row, request_id in enumerate(request_ids):
            rounds = self._rounds.get(request_id)
            if rounds:
                means[row] = sum(rounds) / len(rounds)
        return means

    def record(self, request_ids: list[str], committed: list[int]) -> None:
        """Add one round: ``committed`` tokens of each request."""
        for request_id, count in zip(request_ids, committed, strict=True):
            rounds = self._rounds.setdefault(request_id, deque(maxlen=self._window))
            rounds.append(count)
            self._rounds.move_to_end(request_id)
        while len(self._rounds) > self._capacity:
            self._rounds.popitem(last=False)
