"""Accept lengths of a request's last rounds survive batching and stay bounded."""

from __future__ import annotations

import math

from graft_sglang.history import AcceptHistory


def test_mean_of_the_last_window() -> None:
    history = AcceptHistory(window=3)
    assert math.isnan(history.means(["a"])[0])
    for committed in (9, 1, 2, 3):
        history.record(["a", "b"], [committed, 1])
    assert history.means(["b", "a"]).tolist() == [1.0, 2.0]


def test_the_request_idle_longest_is_forgotten() -> None:
    history = AcceptHistory(capacity=2)
    history.record(["a"], [1])
    history.record(["b"], [2])
    history.record(["a"], [1])
    history.record(["c"], [3])
    assert [math.isnan(x) for x in history.means(["a", "b", "c"])] == [False, True, False]
