"""The split by prompt, the same for training and for every report.

A prompt's part depends on its request id and the seed alone, so prompts that are added later do
not move the others, and a scorer that was trained on "train" has never seen "report".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from graft_sglang.traces.record import RoundRecord

PART_SHARES = {"train": 0.7, "validation": 0.1, "report": 0.2}
"""Expected share of the prompts in each part."""


def part_of(request_id: str, seed: int = 0) -> str:
    """``train``, ``validation`` or ``report``."""
    digest = hashlib.sha256(f"{seed}:{request_id}".encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    for part, share in PART_SHARES.items():
        if place < share:
            return part
        place -= share
    return part


def split_by_prompt(records: Iterable[RoundRecord], seed: int = 0) -> dict[str, list[RoundRecord]]:
    """The rounds of each part; rounds of one request stay together and in order.

    Raises:
        ValueError: a part would have no round.
    """
    parts: dict[str, list[RoundRecord]] = {part: [] for part in PART_SHARES}
    for record in records:
        parts[part_of(record.request_id, seed)].append(record)
    for part, rounds in parts.items():
        if not rounds:
            raise ValueError(
                f"The traces hold too few prompts to split: none of them falls to '{part}'."
            )
    return parts
