"""Rounds put together again into requests: whose they are and what the target said next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from graft_sglang.traces.record import RoundRecord


def task_of(request_id: str) -> str:
    """The task of a request: its id up to the first "/", all of it where there is none."""
    return request_id.split("/", 1)[0]


def by_request(records: Iterable[RoundRecord]) -> dict[str, list[RoundRecord]]:
    """Rounds by request id, in the order of recording.

    A request id that was recorded twice gives one list; ``continuation`` sees the seam.
    """
    requests: dict[str, list[RoundRecord]] = {}
    for record in records:
        requests.setdefault(record.request_id, []).append(record)
    return requests


def continuation(rounds: Sequence[RoundRecord], i: int) -> np.ndarray:
    """The target's own greedy tokens after the root of round ``i``: int32 [L], L >= 1.

    The committed tokens of rounds i, i + 1, ... of one request (of ``by_request``), as long as
    each follows the one before it without a gap and is greedy.

    Raises:
        ValueError: round ``i`` is not greedy, so that what follows is one sample of many.
    """
    if not rounds[i].greedy:
        raise ValueError("only a greedy round has one continuation")
    parts = [rounds[i].committed_tokens]
    for before, after in zip(rounds[i:], rounds[i + 1 :], strict=False):
        if not _follows(before, after):
            break
        parts.append(after.committed_tokens)
    return np.concatenate(parts)


def with_continuations(records: Iterable[RoundRecord]) -> list[tuple[RoundRecord, np.ndarray]]:
    """The greedy rounds with at least D known tokens after their root, and those D, int32 [D].

    Whether a round is kept depends on the recording only, not on how far any tree would get, so
    every scorer is judged on the same rounds. The last rounds of a request fall out.
    """
    kept: list[tuple[RoundRecord, np.ndarray]] = []
    for rounds in by_request(records).values():
        for i, record in enumerate(rounds):
            if not record.greedy:
                continue
            # D + 1 rounds are enough: each commits at least one token.
            depth = len(record.token_ids)
            following = continuation(rounds[i : i + depth + 1], 0)
            if len(following) >= depth:
                kept.append((record, following[:depth]))
    return kept


def _follows(before: RoundRecord, after: RoundRecord) -> bool:
    return (
        after.greedy
        and after.round_index == before.round_index + 1
        and after.prefix_len == before.prefix_len + before.committed
        and after.root == before.committed_tokens[-1]
    )
