"""First differences of a serve benchmark's answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graft_sglang.benchmarks.differences import first_differences
from graft_sglang.benchmarks.serve import Answer, Asked

PROMPT = Asked("p", "gsm8k", (7, 8))


def answer(method: str, *tokens: int) -> Answer:
    return Answer(method, "gsm8k", "p", tokens, 1.0, 1, 1, 1.0)


@pytest.mark.parametrize(
    ("other", "place"), [((1, 9, 3), 1), ((1, 2), 2), ((1, 2, 3, 4), 3), ((9, 2, 3), 0)]
)
def test_the_target_is_asked_after_what_both_share(other: tuple[int, ...], place: int) -> None:
    asked: list[Sequence[int]] = []

    def two_best(input_ids: Sequence[int]) -> tuple[float, float]:
        asked.append(input_ids)
        return -0.1, -0.35

    answers = [answer("none", 1, 2, 3), answer("ddtree:8", *other), answer("dflash", 1, 2, 3)]
    [found] = first_differences(answers, [PROMPT], two_best)
    assert (found.method, found.place) == ("ddtree:8", place)
    assert found.margin == pytest.approx(0.25)
    assert asked == [(7, 8, *(1, 2, 3)[:place])]
