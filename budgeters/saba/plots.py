"""Figures of a fit and of a replay; matplotlib is imported only where a figure is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graft_sglang.budgeters.saba.cost import CostFit, TimedRounds
from graft_sglang.budgeters.saba.oracle import Difficulty, Tracking


def _canvas(columns: int) -> tuple[Any, Any]:
    """Figure and its axes, without a display.

    Raises:
        ValueError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("No figure was drawn: matplotlib is not installed.") from error
    figure = Figure(figsize=(5.5 * columns, 4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def plot_cost_fit(path: Path, timed: TimedRounds, fitted: CostFit) -> None:
    """Measured rounds with Eq. 17's line at the median prefix, and the residuals."""
    budgets, prefix_lens, seconds = timed
    figure, (left, right) = _canvas(2)
    inside = ~fitted.outliers
    left.scatter(budgets[inside], 1e3 * seconds[inside], s=5, alpha=0.4, label="rounds")
    grid = np.linspace(budgets.min(), budgets.max(), 100)
    line = fitted.cost.over(grid).seconds(float(np.median(prefix_lens)))
    left.plot(grid, 1e3 * line, color="black", label=f"fit, R2 {fitted.r2:.3f}")
    left.set(xlabel="budget B, nodes", ylabel="round, ms", title="cost")
    left.legend()
    right.scatter(budgets[inside], 1e3 * fitted.residuals[inside], s=5, alpha=0.4)
    right.axhline(0, color="black", lw=0.8)
    right.set(
        xlabel="budget B, nodes",
        ylabel="measured - fitted, ms",
        title=f"residuals ({int(fitted.outliers.sum())} outliers not shown)",
    )
    figure.savefig(path, dpi=150)


def plot_tracking(path: Path, tracking: list[Tracking], difficulty: Difficulty) -> None:
    """Retained oracle throughput of each policy (Figure 6) and the best budgets (Figure 1c)."""
    figure, (left, right) = _canvas(2)
    for entry in tracking:
        ranked = np.sort(entry.retained)[::-1]
        left.plot(np.linspace(0, 1, len(ranked)), ranked, label=entry.name, lw=1.2)
    left.axhline(0.95, color="grey", lw=0.8, ls=":")
    left.set(xlabel="share of rounds", ylabel="TPS(B) / TPS(oracle)", title="oracle tracking")
    left.legend(fontsize=7)
    for name, curve in zip(difficulty.names, difficulty.relative_tps, strict=True):
        right.plot(difficulty.budgets, curve, marker="o", ms=3, label=name)
    right.set(xlabel="budget B, nodes", ylabel="TPS / best", title="throughput by difficulty")
    right.legend()
    figure.savefig(path, dpi=150)
