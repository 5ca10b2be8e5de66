"""What the doctor calls ok, and that each of its checks can fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graft_sglang.doctor import environment
from graft_sglang.doctor.client import Answer, read_answer
from graft_sglang.doctor.drafter import check_drafter, skipped
from graft_sglang.doctor.findings import Finding, Report, Status, fail, ok, warn
from graft_sglang.doctor.identity import check_identity
from graft_sglang.doctor.near_ties import NEAR_TIE_NATS, Choice, is_near_tie
from graft_sglang.doctor.trees import check_trees, path_questions
from graft_sglang.reference.decoding import Decoded
from graft_sglang.traces import STAGES, RoundRecord

PROMPT = (5, 6)
TEXT = (10, 11, 12, 13)


def choices(gap: float) -> tuple[Choice, ...]:
    """The reference's choices along ``TEXT``; token 99 lies ``gap`` nats below each."""
    return tuple(Choice(token, {token: -0.1, 99: -0.1 - gap}) for token in TEXT)


def answer(*tokens: int, rounds: int = 2, **changes) -> Answer:
    return Answer(PROMPT, tokens, rounds, accepted=1, **changes)


def record(**changes) -> RoundRecord:
    """A root with the children 11 and 40, 11 with the child 12; 11 and 12 are accepted."""
    made = RoundRecord(
        request_id="doctor/0",
        round_index=0,
        greedy=True,
        prefix_len=2,
        batch_size=1,
        root=10,
        token_ids=np.zeros((2, 2), np.int32),
        log_probs=np.zeros((2, 2), np.float32),
        tree_tokens=np.array([10, 11, 40, 12], np.int32),
        tree_parents=np.array([-1, 0, 0, 1], np.int32),
        target_tokens=np.array([11, 12, 77, 13], np.int32),
        accepted=np.array([0, 1, 3], np.int32),
        target_logits=np.zeros((2, 2), np.float32),
        confidence=0.5,
        degeneration=0.0,
        history=2.0,
        budget=3,
        stage_seconds=np.full(len(STAGES), 0.01, np.float32),
    )
    return replace(made, **changes)


def test_a_report_fails_only_by_a_failure() -> None:
    said: list[str] = []
    report = Report(said.append)
    report.add(ok("a", "fine"), warn("b", "odd", "Look."))
    assert report.exit_code == 0
    report.add(fail("c", "broken", "Mend it.", figure=3))
    assert report.exit_code == 1
    document = report.document("a machine")
    assert document["exit_code"] == 1
    assert document["counts"] == {"ok": 1, "warn": 1, "FAIL": 1}
    assert document["findings"][2]["data"] == {"figure": 3}
    assert said[2] == "FAIL  c: broken\n      -> Mend it."


@pytest.mark.parametrize(("status", "advice"), [(Status.OK, "Do."), (Status.FAIL, "")])
def test_advice_goes_with_trouble(status: Status, advice: str) -> None:
    with pytest.raises(ValueError, match="advice"):
        Finding("check", status, "seen", advice)


def test_near_ties() -> None:
    choice = Choice(1, {1: -0.1, 2: -0.1 - NEAR_TIE_NATS, 3: -2.0})
    assert is_near_tie(choice, 2, exact=False)
    assert not is_near_tie(choice, 2, exact=True)
    assert not is_near_tie(choice, 3, exact=False)
    assert not is_near_tie(choice, 4, exact=False)
    assert choice.margin == pytest.approx(NEAR_TIE_NATS)


@pytest.mark.parametrize(
    ("said", "gap", "exact", "status"),
    [
        ((10, 11, 12, 13), 5.0, True, Status.OK),
        ((10, 99, 12, 13), 0.01, True, Status.FAIL),
        ((10, 99, 12, 13), 0.01, False, Status.OK),
        ((10, 99, 12, 13), 1.0, False, Status.FAIL),
        ((10, 11, 12), 0.01, False, Status.FAIL),
        ((10, 11, 12, 13, 14), 0.01, False, Status.FAIL),
    ],
)
def test_identity(said: tuple[int, ...], gap: float, exact: bool, status: Status) -> None:
    expected = [answer(*TEXT, rounds=0, choices=choices(gap))]
    assert check_identity("x", [answer(*said)], expected, exact).status is status


def test_identity_without_drafts_is_no_proof() -> None:
    expected = [answer(*TEXT, rounds=0, choices=choices(5.0))]
    finding = check_identity("x", [answer(*TEXT, rounds=0)], expected, exact=True)
    assert finding.status is Status.FAIL
    assert "nothing was drafted" in finding.seen


def test_random_trees() -> None:
    text = {"doctor/0": (*PROMPT, *TEXT)}
    questions = path_questions([record()], text)
    asked = {question.node: question for question in questions}
    assert asked[2].input_ids == (5, 6, 10, 40)
    assert asked[3].input_ids == (5, 6, 10, 11, 12)
    assert [asked[n].accepted for n in (1, 2, 3)] == [True, False, True]
    right = [Choice(q.said, {q.said: -0.1, 50: -3.0}) for q in questions]
    assert check_trees(questions, right, exact=True).status is Status.OK
    wrong = [Choice(50, {50: -0.1, q.said: -3.0}) if q.node == 2 else c
             for q, c in zip(questions, right, strict=True)]  # fmt: skip
    finding = check_trees(questions, wrong, exact=False)
    assert finding.status is Status.FAIL
    assert finding.data["wrong"][0]["node"] == 2
    assert check_trees([], [], exact=True).status is Status.FAIL
    spine = [q for q in questions if q.accepted]
    assert check_trees(spine, [Choice(q.said, {q.said: 0.0}) for q in spine], True).status is (
        Status.WARN
    )


def test_a_root_that_is_not_in_the_text_is_an_error() -> None:
    with pytest.raises(ValueError, match="has the root 9"):
        path_questions([record(root=9)], {"doctor/0": (*PROMPT, *TEXT)})


def drafted(lengths: list[int], prompt: int = 2) -> list[RoundRecord]:
    found, at = [], prompt
    for number, committed in enumerate(lengths):
        accepted = np.arange(committed, dtype=np.int32)
        found.append(record(round_index=number, prefix_len=at, accepted=accepted))
        at += committed
    return found


@pytest.mark.parametrize(
    ("served", "looped", "status"),
    [
        ([2] * 40, [2] * 40, Status.OK),
        ([1] * 80, [2] * 40, Status.FAIL),
        ([1] * 80, [1] * 80, Status.WARN),
        ([2] * 5, [2] * 5, Status.WARN),
    ],
)
def test_the_drafter(served: list[int], looped: list[int], status: Status) -> None:
    tokens = tuple(range(1 + sum(served)))
    said = Answer(PROMPT, tokens, len(served), sum(served) - len(served))
    finding = check_drafter(
        [said], drafted(served), [Decoded(list(tokens), looped)], block_size=4, exact=True
    )
    assert finding.status is status


def test_a_drafter_that_plain_code_does_not_know() -> None:
    finding = skipped([answer(*TEXT)], "it has a head of its own")
    assert finding.status is Status.WARN
    assert "skipped, because it has a head of its own" in finding.seen


def test_a_reply_is_read() -> None:
    reply = {
        "output_ids": [7, 8],
        "meta_info": {
            "spec_verify_ct": 3,
            "spec_num_correct_drafts": 4,
            "output_top_logprobs": [[[-0.1, 7, None], [-2.0, 9, None]], [[-0.2, 8, None]]],
        },
    }
    found = read_answer(PROMPT, reply)
    assert (found.tokens, found.rounds, found.accepted) == ((7, 8), 3, 4)
    assert found.choices[0] == Choice(7, {7: -0.1, 9: -2.0})


def test_another_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.check_sglang().status is Status.OK

    def refuse() -> None:
        raise environment.UnsupportedSGLang("0.6.0")

    monkeypatch.setattr(environment, "check_sglang_version", refuse)
    assert environment.check_sglang().status is Status.FAIL


def test_an_old_python_and_missing_entry_points() -> None:
    assert environment.check_python((3, 10, 1)).status is Status.FAIL
    assert environment.check_python().status is Status.OK
    for group, value in environment.ENTRY_POINTS:
        assert environment.check_entry_point(group, value).status is Status.OK
        assert environment.check_entry_point(group, value + "x").status is Status.FAIL


@pytest.mark.parametrize(
    ("variables", "status"),
    [
        ({}, Status.OK),
        ({"SGLANG_PLUGINS": "a, graft"}, Status.OK),
        ({"SGLANG_PLUGINS": "a"}, Status.FAIL),
        ({"SGLANG_PLATFORM": "graft_cpu"}, Status.OK),
        ({"SGLANG_PLATFORM": "other"}, Status.FAIL),
    ],
)
def test_variables(variables: dict[str, str], status: Status) -> None:
    assert environment.check_variables(variables).status is status
