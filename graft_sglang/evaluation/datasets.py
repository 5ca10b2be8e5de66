"""Prompt files: rows of ``{"id", "task", "split", "prompt"}``, put into each task's own words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_STEPS = "{}\nPlease reason step by step, and put your final answer within \\boxed{{}}."
WRAPPERS = {
    "gsm8k": _STEPS,
    "math500": _STEPS,
    "aime24": _STEPS,
    "aime25": _STEPS,
    "humaneval": "Write a solution to the following problem and make sure that it passes the "
    "tests:\n```python\n{}\n```",
    "swe-bench": "Problem Statement:\n{}\nPlease fix the issue described above.",
}
"""The instruction around a task's prompt, as the DFlash and DDTree releases put it; a task that
is not named is asked as it stands."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user message."""

    id: str
    """``task/...``"""
    task: str
    text: str


def read_prompts(
    places: list[Path], split: str | None = None, per_task: int | None = None
) -> list[Prompt]:
    """The prompts of ``*.jsonl`` files, or of folders of them, in file order.

    Args:
        split: only rows of this split; ``None`` takes all.
        per_task: at most so many of each file.

    Raises:
        ValueError: no such file, a row without a prompt, or no row left.
    """
    files: list[Path] = []
    for place in places:
        files += sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
    prompts: list[Prompt] = []
    for file in files:
        if not file.is_file():
            raise ValueError(f"There is no prompt file '{file}'.")
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        rows = [_prompt(json.loads(line), file, number) for number, line in enumerate(lines, 1)]
        chosen = [prompt for prompt, its_split in rows if split in (None, its_split)]
        prompts += chosen[:per_task]
    if not prompts:
        raise ValueError(f"No prompts of split '{split}' in {', '.join(map(str, places))}.")
    return prompts


def _prompt(row: dict[str, str], file: Path, number: int) -> tuple[Prompt, str | None]:
    if not isinstance(row.get("prompt"), str):
        raise ValueError(f"Line {number} of '{file}' has no prompt.")
    task = row.get("task") or file.stem
    identity = row.get("id") or f"{task}/{number}"
    if not identity.startswith(f"{task}/"):
        identity = f"{task}/{identity}"
    text = WRAPPERS.get(task, "{}").format(row["prompt"])
    return Prompt(identity, task, text), row.get("split")
