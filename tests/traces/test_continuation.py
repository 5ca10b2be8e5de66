"""Requests, their continuations and the split by prompt."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from synthetic_rounds import simulate, successors

from graft_sglang.traces import by_request, continuation, part_of, split_by_prompt, task_of


def test_depths_of_a_recorded_tree() -> None:
    record = simulate(1, 1)[0]
    for node, parent in enumerate(record.tree_parents):
        expected = 0 if parent < 0 else record.tree_depths[parent] + 1
        assert record.tree_depths[node] == expected


def test_the_continuation_is_the_targets_own_text() -> None:
    follow = successors()
    for rounds in by_request(simulate()).values():
        for i, record in enumerate(rounds):
            tokens = continuation(rounds, i)
            assert len(tokens) == sum(r.committed for r in rounds[i:])
            token = record.root
            for found in tokens:
                token = follow[token]
                assert found == token


@pytest.mark.parametrize(
    "change",
    [
        {"greedy": False},
        {"prefix_len": 999},
        {"round_index": 999},
        {"root": 0},
    ],
)
def test_the_continuation_ends_at_a_gap(change: dict[str, int]) -> None:
    rounds = simulate(1, 6)
    assert rounds[3].root != 0
    whole = continuation(rounds, 1)
    rounds[3] = dataclasses.replace(rounds[3], **change)  # type: ignore[arg-type]
    cut = continuation(rounds, 1)
    assert len(cut) == rounds[1].committed + rounds[2].committed < len(whole)
    np.testing.assert_array_equal(cut, whole[: len(cut)])


def test_a_request_recorded_twice_is_not_joined() -> None:
    once = simulate(1, 5)
    rounds = by_request(once + once)["toy/0"]
    assert len(rounds) == 10
    np.testing.assert_array_equal(continuation(rounds, 2), continuation(once, 2))


def test_a_sampled_round_has_no_single_continuation() -> None:
    rounds = [dataclasses.replace(r, greedy=False) for r in simulate(1, 3)]
    with pytest.raises(ValueError, match="only a greedy round"):
        continuation(rounds, 0)


def test_tasks() -> None:
    assert task_of("gsm8k/17") == "gsm8k"
    assert task_of("swe-bench/a/b") == "swe-bench"
    assert task_of("3f2a") == "3f2a"


def test_the_split_keeps_prompts_whole_and_does_not_move() -> None:
    records = simulate(60, 3)
    parts = split_by_prompt(records)
    prompts = {part: {r.request_id for r in rounds} for part, rounds in parts.items()}
    assert sum(len(rounds) for rounds in parts.values()) == len(records)
    assert set.union(*prompts.values()) == {r.request_id for r in records}
    assert sum(len(found) for found in prompts.values()) == 60
    more = split_by_prompt(records + simulate(30, 3, seed=5, task="other"))
    for part, found in prompts.items():
        assert found == {r.request_id for r in more[part] if r.request_id.startswith("toy")}
    assert split_by_prompt(records, seed=1)["train"] != parts["train"]


def test_shares_of_the_split() -> None:
    parts = [part_of(f"t/{i}") for i in range(4000)]
    assert abs(parts.count("train") / 4000 - 0.7) < 0.03
    assert abs(parts.count("validation") / 4000 - 0.1) < 0.02


def test_too_few_prompts_to_split() -> None:
    with pytest.raises(ValueError, match="too few prompts"):
        split_by_prompt(simulate(1, 3))
