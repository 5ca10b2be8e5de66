"""Chat examples and text corpora, read from folders given by the caller."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Example:
    """One user prompt and one assistant response."""

    task: str
    prompt: str
    response: str


def read_jsonl(path: Path) -> list[dict]:
    """All rows of a JSON-lines file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def read_corpus(folder: Path) -> list[Example]:
    """Every ``*.jsonl`` of ``folder`` with rows ``{"task", "prompt", "response"}``."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise FileNotFoundError(f"no *.jsonl corpus files in {folder}")
    rows = [row for path in files for row in read_jsonl(path)]
    return [Example(r["task"], r["prompt"], r["response"]) for r in rows]


def is_held_out(text: str, share: float) -> bool:
    """Stable split by content hash: the same text is always on the same side."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


def split_examples(
    examples: Iterable[Example], share: float
) -> tuple[list[Example], list[Example]]:
    """(training, held-out) by the hash of the prompt."""
    train, held_out = [], []
    for example in examples:
        (held_out if is_held_out(example.prompt, share) else train).append(example)
    return train, held_out


REASON = "\nPlease reason step by step, and put your final answer within \\boxed{}."
SOLVE = (
    "Write a solution to the following problem and make sure that it passes the tests:\n"
    "```python\n{}\n```"
)


def wrap_prompt(task: str, prompt: str) -> str:
    """The instruction wrapper that DFlash's and DDTree's evaluations put around a raw prompt."""
    if task in ("gsm8k", "math", "math500"):
        return prompt + REASON
    return SOLVE.format(prompt) if task == "humaneval" else prompt
