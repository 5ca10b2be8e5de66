"""The studies of TDES on recorded rounds: Table 3, the +TDES row of Table 2, Figures 1(b) and 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from graft_sglang.evaluation.replay import Replay, ReplayRounds, replay, replayable
from graft_sglang.evaluation.tdes import DDTREE, FORMS, Figures, choose_beta, figures
from graft_sglang.scorers.ddtree import DDTreeScorer
from graft_sglang.scorers.tdes.model import TDESModel
from graft_sglang.scorers.tdes.tables import ProjectedTables
from graft_sglang.scorers.tdes.train import TrainOptions, train
from graft_sglang.traces import RoundRecord, task_of

BETAS = {
    "tdes": (0.0, 0.05, 0.1, 0.2, 0.4),
    "tdes_normalized": (0.0, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0),
}
"""The paper's sweep, and a wider one for the form that bears larger values."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One line of Table 3."""

    form: str
    beta: float
    validation_mat: float
    chosen: bool
    """The largest MAT on the validation prompts."""
    figures: Figures
    """Of the reported prompts."""


@dataclass(frozen=True, slots=True)
class MethodRow:
    """One method at one budget, over all reported rounds or those of one task."""

    method: str
    beta: float | None
    budget: int
    task: str | None
    figures: Figures


@dataclass(frozen=True, slots=True)
class Scored:
    """Replays of the reported rounds with one model's scorers at their chosen betas."""

    betas: dict[str, float]
    replays: dict[str, Replay]
    """By method, ``ddtree`` included."""


def sweep(
    tables: ProjectedTables,
    validation: ReplayRounds,
    report: ReplayRounds,
    betas: Mapping[str, Sequence[float]],
    budget: int,
) -> list[SweepRow]:
    """Table 3 for each form: beta is chosen on one set of rounds, the figures are of the other."""
    base = replay(report, DDTreeScorer(), [budget])
    rows = []
    for name, form in FORMS.items():
        best, mats = choose_beta(form, tables, validation, betas[name], budget)
        for beta, mat in mats.items():
            replayed = replay(report, form(tables, beta), [budget])
            found = figures(replayed, base, budget)
            rows.append(SweepRow(name, beta, mat, beta == best, found))
    return rows


def replay_methods(
    tables: ProjectedTables, report: ReplayRounds, betas: dict[str, float], budgets: Sequence[int]
) -> Scored:
    """Replay DDTree and each form at its beta."""
    replays = {DDTREE: replay(report, DDTreeScorer(), budgets)}
    for name, form in FORMS.items():
        replays[name] = replay(report, form(tables, betas[name]), budgets)
    return Scored(betas, replays)


def compare(scored: Scored, budgets: Sequence[int]) -> list[MethodRow]:
    """Every method at every budget."""
    base = scored.replays[DDTREE]
    return [
        MethodRow(name, scored.betas.get(name), budget, None, figures(replayed, base, budget))
        for budget in budgets
        for name, replayed in scored.replays.items()
    ]


def compare_tasks(scored: Scored, budget: int) -> list[MethodRow]:
    """Every method on every task."""
    base = scored.replays[DDTREE]
    tasks = np.array([task_of(request_id) for request_id in base.request_ids])
    return [
        MethodRow(
            name,
            scored.betas.get(name),
            budget,
            str(task),
            figures(replayed, base, budget, tasks == task),
        )
        for task in np.unique(tasks)
        for name, replayed in scored.replays.items()
    ]


def train_on_task(
    parts: dict[str, list[RoundRecord]], task: str, embedding: torch.Tensor, options: TrainOptions
) -> TDESModel:
    """Figure 5's scorer: trained and validated on one task's prompts.

    Raises:
        ValueError: no training or validation prompt is of that task.
    """
    chosen = {
        part: [record for record in parts[part] if task_of(record.request_id) == task]
        for part in ("train", "validation")
    }
    for part, records in chosen.items():
        if not records:
            raise ValueError(f"No recorded prompt of the task '{task}' falls to '{part}'.")
    return train(chosen["train"], chosen["validation"], embedding, options).model


def cross_task(
    parts: dict[str, list[RoundRecord]],
    task: str,
    embedding: torch.Tensor,
    options: TrainOptions,
    report: ReplayRounds,
    betas: Mapping[str, Sequence[float]],
    budget: int,
) -> list[MethodRow]:
    """Figure 5: a scorer of one task, its betas chosen on that task too, on every task."""
    model = train_on_task(parts, task, embedding, options)
    tables = ProjectedTables.project(model, embedding)
    own = replayable(r for r in parts["validation"] if task_of(r.request_id) == task)
    chosen = {
        name: choose_beta(form, tables, own, betas[name], budget)[0] for name, form in FORMS.items()
    }
    return compare_tasks(replay_methods(tables, report, chosen, [budget]), budget)
