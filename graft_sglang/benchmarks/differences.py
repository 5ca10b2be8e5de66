"""Where an answer first leaves the base method's, and how close a choice the target had there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graft_sglang.benchmarks.serve import Answer, Asked


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which two greedy answers to a prompt differ."""

    method: str
    task: str
    prompt: str
    place: int
    """Tokens both answers share before it."""
    margin: float
    """log p of the target's best token less log p of its second best there, nats."""


def first_differences(
    answers: Sequence[Answer],
    prompts: Sequence[Asked],
    two_best: Callable[[Sequence[int]], tuple[float, float]],
) -> list[Difference]:
    """One for each answer that is not the base's, which is the first method answered.

    Args:
        two_best: the target's two largest log-probabilities after these token ids.
    """
    asked = {prompt.id: prompt.input_ids for prompt in prompts}
    base = {a.prompt: a.output_ids for a in answers if a.method == answers[0].method}
    found = []
    for answer in answers:
        ours, theirs = answer.output_ids, base[answer.prompt]
        if ours == theirs:
            continue
        pairs = enumerate(zip(ours, theirs, strict=False))
        shorter = min(len(ours), len(theirs))
        place = next((i for i, (a, b) in pairs if a != b), shorter)
        best, second = two_best((*asked[answer.prompt], *theirs[:place]))
        found.append(
            Difference(answer.method, answer.task, answer.prompt, place, margin=best - second)
        )
    return found
