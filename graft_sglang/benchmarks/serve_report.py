"""Tables of a ``bench serve`` run: identity, accept length, nodes and speed of each method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from graft_sglang.benchmarks.serve import Answer
from graft_sglang.evaluation.clustered import Estimate, ratio
from graft_sglang.evaluation.tables import as_json, markdown

ALL = "all"


@dataclass(frozen=True, slots=True)
class Line:
    """One method on one task, or on all."""

    method: str
    task: str
    prompts: int
    identical: int
    """Answers with the same tokens as the first method's."""
    mat: float | None
    """Accepted drafts a round + 1; over all tasks the mean of the tasks'. None without rounds."""
    nodes: float
    """Draft nodes a round, mean over rounds."""
    tokens_per_s: float
    speedup: Estimate
    """Tokens/s relative to the first method's, paired by prompt, with a clustered error."""


def lines(answers: Sequence[Answer]) -> list[Line]:
    """All methods on each task and on all tasks; the first method answered is the base."""
    by_method: dict[str, dict[str, Answer]] = {}
    for answer in answers:
        by_method.setdefault(answer.method, {})[answer.prompt] = answer
    base = next(iter(by_method.values()))
    tasks = list(dict.fromkeys(answer.task for answer in base.values()))
    found = []
    for method, given in by_method.items():
        each = []
        for task in tasks:
            asked = [prompt for prompt, answer in base.items() if answer.task == task]
            each.append(_line(method, task, given, base, asked))
        found += each
        if len(tasks) > 1:
            whole = _line(method, ALL, given, base, list(base))
            mats = [line.mat for line in each if line.mat is not None]
            mat = sum(mats) / len(mats) if mats else None
            found.append(replace(whole, mat=mat))
    return found


def _line(
    method: str,
    task: str,
    given: dict[str, Answer],
    base: dict[str, Answer],
    asked: Sequence[str],
) -> Line:
    ours, theirs = [given[p] for p in asked], [base[p] for p in asked]
    rounds = sum(a.rounds for a in ours)
    tokens = np.array([len(a.output_ids) for a in ours])
    seconds = np.array([a.seconds for a in ours])
    base_per_token = np.array([a.seconds / len(a.output_ids) for a in theirs])
    return Line(
        method=method,
        task=task,
        prompts=len(ours),
        identical=sum(a.output_ids == b.output_ids for a, b in zip(ours, theirs, strict=True)),
        mat=1 + sum(a.accepted for a in ours) / rounds if rounds else None,
        nodes=sum(a.nodes * a.rounds for a in ours) / rounds if rounds else 0.0,
        tokens_per_s=float(tokens.sum() / seconds.sum()),
        speedup=ratio(base_per_token * tokens, seconds, asked),
    )


def as_table(found: Sequence[Line], task: str) -> str:
    """Markdown table of one task (or ``ALL``)."""
    rows = [
        [
            line.method,
            f"{line.identical} of {line.prompts}",
            "" if line.mat is None else f"{line.mat:.2f}",
            f"{line.nodes:.1f}",
            f"{line.tokens_per_s:.1f}",
            f"{line.speedup.value:.2f} ± {line.speedup.se:.2f}",
        ]
        for line in found
        if line.task == task
    ]
    header = ("method", "same tokens", "MAT", "nodes", "tokens/s", "times the first")
    return markdown(header, rows)


def as_rows(found: Sequence[Line]) -> list[dict]:
    """For JSON."""
    return [
        {
            "method": line.method,
            "task": line.task,
            "prompts": line.prompts,
            "identical": line.identical,
            "mat": line.mat,
            "nodes": line.nodes,
            "tokens_per_s": line.tokens_per_s,
            "speedup": as_json(line.speedup),
        }
        for line in found
    ]
