"""Greedy identity: a GRAFT server's tokens against those of the same target without speculation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from graft_sglang.doctor.client import Answer
from graft_sglang.doctor.findings import Finding, fail, ok
from graft_sglang.doctor.near_ties import NEAR_TIE_NATS, is_near_tie

NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an answer first leaves the reference's; what follows differs of itself."""

    prompt: int
    """Its number."""
    position: int
    """0-based among the new tokens."""
    expected: int
    """The reference's token, -1 if its answer had ended."""
    said: int
    """GRAFT's token, -1 if its answer had ended."""
    margin_nats: float
    """Between the reference's two best tokens there; NaN if its answer had ended."""
    gap_nats: float
    """Between the reference's best token and ``said``; inf if it isn't among its best."""
    near_tie: bool


def first_difference(number: int, said: Answer, expected: Answer, exact: bool) -> Difference | None:
    """``None`` if both say the same.

    Args:
        expected: with choices.
        exact: float32, where no difference is a near-tie.
    """
    mine, theirs = said.tokens, expected.tokens
    same = next(
        (i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b),
        min(len(mine), len(theirs)),
    )
    if same == len(mine) == len(theirs):
        return None
    if same in (len(mine), len(theirs)):
        return Difference(
            number, same, _token(theirs, same), _token(mine, same), float("nan"), float("inf"),
            near_tie=False,
        )  # fmt: skip
    choice = expected.choices[same]
    return Difference(
        number, same, theirs[same], mine[same], choice.margin, choice.gap(mine[same]),
        is_near_tie(choice, mine[same], exact),
    )  # fmt: skip


def check_identity(
    label: str, said: Sequence[Answer], expected: Sequence[Answer], exact: bool
) -> Finding:
    """``FAIL`` if any first difference is not a near-tie.

    Args:
        label: which server, in words.
        expected: of the server without speculation, with choices, prompt by prompt.
    """
    pairs = enumerate(zip(said, expected, strict=True))
    found = [first_difference(i, mine, theirs, exact) for i, (mine, theirs) in pairs]
    differences = [difference for difference in found if difference is not None]
    wrong = [difference for difference in differences if not difference.near_tie]
    tokens = sum(len(answer.tokens) for answer in expected)
    rounds = sum(answer.rounds for answer in said)
    check = f"identity, {label}"
    seen = (
        f"{len(said) - len(differences)} of {len(said)} answers identical "
        f"({tokens} tokens, {rounds} rounds)"
    )
    data = {"tokens": tokens, "rounds": rounds, "differences": [asdict(d) for d in differences]}
    if not wrong and rounds == 0:
        return fail(check, f"{seen}, but nothing was drafted", "See which algorithm served.")
    if wrong:
        return fail(
            check,
            f"{seen}; {len(wrong)} differences are no near-ties, first: {_words(wrong[0])}",
            "Don't serve with these settings; try another --attention-backend, or on a CPU "
            "--dtype float32, and report it with the --json file.",
            **data,
        )
    if differences:
        gaps = ", ".join(f"{d.gap_nats:.3f}" for d in differences)
        seen += f"; the others first differ at near-ties (gaps {gaps} <= {NEAR_TIE_NATS} nats)"
    return ok(check, seen, **data)


def _token(tokens: Sequence[int], position: int) -> int:
    return tokens[position] if position < len(tokens) else NO_TOKEN


def _words(difference: Difference) -> str:
    return (
        f"prompt {difference.prompt}, token {difference.position}: {difference.said} instead of "
        f"{difference.expected}, {difference.gap_nats:.3f} nats below it (the reference's two best "
        f"are {difference.margin_nats:.3f} nats apart)"
    )
