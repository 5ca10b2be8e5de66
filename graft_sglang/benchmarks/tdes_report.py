"""Writes the studies of TDES as markdown, JSON and PNG."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graft_sglang.benchmarks.tdes import MethodRow, SweepRow
from graft_sglang.evaluation import plots
from graft_sglang.evaluation.tables import as_json, markdown, percent, plus_minus
from graft_sglang.evaluation.tdes import DDTREE, Figures

_FIGURES = ("MAT", "MAT vs ddtree", "mismatch rate", "mismatch reduction")


@dataclass(frozen=True, slots=True)
class TDESReport:
    """What ``graft-sglang bench tdes`` found."""

    facts: dict[str, str]
    """Machine, date, versions, data."""
    budget: int
    """Of the sweep and of the figures by task."""
    sweep: list[SweepRow]
    methods: list[MethodRow]
    tasks: list[MethodRow]
    cross_task: list[MethodRow]
    """Empty if not asked for."""
    trained_on: str
    """The task of ``cross_task``."""

    def as_markdown(self) -> str:
        """All tables."""
        parts = ["# TDES on recorded rounds\n"]
        parts.append("".join(f"- {name}: {value}\n" for name, value in self.facts.items()))
        parts.append(f"## Beta (Table 3), {self.budget} nodes\n")
        parts.append(_sweep_table(self.sweep))
        parts.append("## Fixed budgets (+TDES of Table 2)\n")
        parts.append(_method_table(self.methods))
        parts.append(f"## By task (Figure 1b), {self.budget} nodes\n")
        parts.append(_method_table(self.tasks))
        if self.cross_task:
            parts.append(f"## Trained on {self.trained_on} only (Figure 5)\n")
            parts.append(_method_table(self.cross_task))
        parts.append(
            "MAT counts accepted draft nodes + 1. ± is one standard error, clustered by prompt; "
            "comparisons are paired by round. Beta was chosen on the validation prompts.\n"
        )
        return "\n".join(parts)

    def as_document(self) -> dict[str, Any]:
        """The same as plain JSON."""
        return {
            "facts": self.facts,
            "budget": self.budget,
            "beta": [
                {
                    "form": row.form,
                    "beta": row.beta,
                    "validation_mat": row.validation_mat,
                    "chosen": row.chosen,
                    **_figures_json(row.figures),
                }
                for row in self.sweep
            ],
            "budgets": [_method_json(row) for row in self.methods],
            "tasks": [_method_json(row) for row in self.tasks],
            "trained_on": self.trained_on,
            "cross_task": [_method_json(row) for row in self.cross_task],
        }

    def write(self, folder: Path) -> list[Path]:
        """Write ``tdes.md``, ``tdes.json`` and, with matplotlib, the plots; returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / "tdes.md", folder / "tdes.json"]
        files[0].write_text(self.as_markdown(), encoding="utf-8")
        files[1].write_text(json.dumps(self.as_document(), indent=2) + "\n", encoding="utf-8")
        if plots.plots_available():
            files += self._plot(folder)
        return files

    def _plot(self, folder: Path) -> list[Path]:
        files = [folder / f"tdes_{name}.png" for name in ("beta", "budgets", "mismatch")]
        _plot_sweep(files[0], self.sweep)
        _plot_budgets(files[1], self.methods)
        _plot_mismatch(files[2], self.tasks)
        if self.cross_task:
            files.append(folder / "tdes_cross_task.png")
            _plot_cross_task(files[3], self.tasks, self.cross_task, self.trained_on)
        return files


def _cells(found: Figures) -> list[str]:
    return [
        plus_minus(found.mat),
        percent(found.mat_change, signed=True),
        percent(found.mismatch),
        percent(found.mismatch_reduction, signed=True),
    ]


def _sweep_table(rows: Sequence[SweepRow]) -> str:
    lines = [
        [
            row.form,
            f"**{row.beta:g}**" if row.chosen else f"{row.beta:g}",
            f"{row.validation_mat:.3f}",
            *_cells(row.figures),
        ]
        for row in rows
    ]
    return markdown(["scorer", "beta (bold: chosen)", "validation MAT", *_FIGURES], lines)


def _method_table(rows: Sequence[MethodRow]) -> str:
    lines = [
        [
            row.task or "all",
            row.method,
            "" if row.beta is None else f"{row.beta:g}",
            str(row.budget),
            f"{row.figures.rounds} / {row.figures.prompts}",
            *_cells(row.figures),
        ]
        for row in rows
    ]
    header = ["task", "scorer", "beta", "nodes", "rounds / prompts", *_FIGURES]
    return markdown(header, lines, text_columns=2)


def _figures_json(found: Figures) -> dict[str, Any]:
    return {
        "rounds": found.rounds,
        "prompts": found.prompts,
        "mat": as_json(found.mat),
        "mat_change": as_json(found.mat_change),
        "mismatch": as_json(found.mismatch),
        "mismatch_reduction": as_json(found.mismatch_reduction),
    }


def _method_json(row: MethodRow) -> dict[str, Any]:
    return {
        "method": row.method,
        "beta": row.beta,
        "budget": row.budget,
        "task": row.task,
        **_figures_json(row.figures),
    }


def _plot_sweep(path: Path, rows: Sequence[SweepRow]) -> None:
    places: dict[str, list[float]] = {}
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        places.setdefault(row.form, []).append(row.beta)
        series.setdefault(row.form, []).append((row.figures.mat.value, row.figures.mat.se))
    plots.lines(path, places, series, ("beta", "MAT"))


def _plot_budgets(path: Path, rows: Sequence[MethodRow]) -> None:
    places: dict[str, list[float]] = {}
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        places.setdefault(row.method, []).append(row.budget)
        series.setdefault(row.method, []).append((row.figures.mat.value, row.figures.mat.se))
    plots.lines(path, places, series, ("nodes", "MAT"))


def _plot_mismatch(path: Path, rows: Sequence[MethodRow]) -> None:
    tasks = list(dict.fromkeys(str(row.task) for row in rows))
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        found = row.figures.mismatch
        series.setdefault(row.method, []).append((100 * found.value, 100 * found.se))
    plots.bars(path, tasks, series, ("task", "mismatch rate (%)"))


def _plot_cross_task(
    path: Path, full: Sequence[MethodRow], single: Sequence[MethodRow], task: str
) -> None:
    tasks = list(dict.fromkeys(str(row.task) for row in full))
    series: dict[str, list[tuple[float, float]]] = {}
    for name, rows in (("all tasks", full), (f"{task} only", single)):
        for row in rows:
            if row.method != DDTREE:
                found = row.figures.mat_change
                label = f"{row.method}, {name}"
                series.setdefault(label, []).append((100 * found.value, 100 * found.se))
    plots.bars(path, tasks, series, ("task", "MAT vs ddtree (%)"))
