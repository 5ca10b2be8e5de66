"""Judging a TDES model by replay: per epoch of a training, per beta, budget and task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from graft_sglang.evaluation.clustered import Estimate, mean, ratio, reduction, relative_change
from graft_sglang.evaluation.replay import Replay, ReplayRounds, replay, replayable
from graft_sglang.fingerprint import fingerprint_embedding
from graft_sglang.scorers.ddtree import DDTreeScorer
from graft_sglang.scorers.tdes.model import TDESModel
from graft_sglang.scorers.tdes.scorer import NormalizedTDESScorer, TDESScorer
from graft_sglang.scorers.tdes.tables import ProjectedTables
from graft_sglang.target_files import read_input_embedding
from graft_sglang.traces import RoundRecord, TraceMeta

FORMS: dict[str, type[TDESScorer]] = {
    "tdes": TDESScorer,
    "tdes_normalized": NormalizedTDESScorer,
}
"""Registry name -> scorer."""

DDTREE = "ddtree"


def target_of(meta: TraceMeta, folder: Path | str) -> torch.Tensor:
    """The input embedding [V, E] of the target that the traces were recorded with.

    Raises:
        ValueError: no embedding there, or another target's.
    """
    embedding = read_input_embedding(folder)
    if fingerprint_embedding(embedding) != meta.target_fingerprint:
        raise ValueError(f"'{folder}' is not the target that the traces were recorded with.")
    return embedding


def mat_report(
    records: Sequence[RoundRecord], embedding: torch.Tensor, budget: int
) -> Callable[[TDESModel], dict[str, float]]:
    """For ``train``: replayed MAT of DDTree and of both forms at beta 0.2 and 1."""
    rounds = replayable(records)
    base = float(replay(rounds, DDTreeScorer(), [budget]).committed.mean())

    def evaluate(model: TDESModel) -> dict[str, float]:
        tables = ProjectedTables.project(model, embedding)
        report = {f"mat_{DDTREE}": base}
        for name, form, beta in (
            ("tdes", TDESScorer, 0.2),
            ("normalized", NormalizedTDESScorer, 1.0),
        ):
            replayed = replay(rounds, form(tables, beta), [budget])
            report[f"mat_{name}"] = float(replayed.committed.mean())
        return report

    return evaluate


@dataclass(frozen=True, slots=True)
class Figures:
    """One method at one budget over some rounds, beside DDTree over the same."""

    rounds: int
    prompts: int
    mat: Estimate
    mat_change: Estimate
    """Relative to DDTree."""
    mismatch: Estimate
    """Mismatched rounds / rounds that stop before depth D."""
    mismatch_reduction: Estimate
    """Relative to DDTree."""


def figures(new: Replay, base: Replay, budget: int, chosen: np.ndarray | None = None) -> Figures:
    """Compare two replays of the same rounds at one budget.

    Args:
        chosen: bool [n], the rounds that count; all by default.
    """
    at = np.ones(len(new.request_ids), np.bool_) if chosen is None else chosen
    prompts = new.request_ids[at]
    column = new.column(budget), base.column(budget)
    committed = new.committed[at, column[0]], base.committed[at, column[1]]
    mismatch = ratio(new.mismatched[at, column[0]], new.stopped[at, column[0]], prompts)
    base_mismatch = ratio(base.mismatched[at, column[1]], base.stopped[at, column[1]], prompts)
    return Figures(
        rounds=len(prompts),
        prompts=len(set(prompts)),
        mat=mean(committed[0], prompts),
        mat_change=relative_change(*committed, prompts),
        mismatch=mismatch,
        mismatch_reduction=reduction(mismatch, base_mismatch),
    )


def choose_beta(
    form: type[TDESScorer],
    tables: ProjectedTables,
    rounds: ReplayRounds,
    betas: Sequence[float],
    budget: int,
) -> tuple[float, dict[float, float]]:
    """The beta of the largest MAT on validation rounds (the smaller of equals), and all MATs."""
    mats = {
        beta: float(replay(rounds, form(tables, beta), [budget]).committed.mean())
        for beta in sorted(betas)
    }
    return max(mats, key=lambda beta: mats[beta]), mats
