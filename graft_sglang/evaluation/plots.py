"""Plots of the studies, as PNG files. matplotlib is needed only here (extra ``bench``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Series = Mapping[str, Sequence[tuple[float, float]]]
"""Label -> (value, standard error) of each place on the x axis."""


def plots_available() -> bool:
    """Whether matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def lines(
    path: Path, x: Mapping[str, Sequence[float]], series: Series, labels: tuple[str, str]
) -> None:
    """A line with error bars for each label.

    Args:
        x: label -> places on the x axis.
        labels: of the x and the y axis.
    """
    figure, axes = _figure()
    for label, points in series.items():
        values, errors = zip(*points, strict=True)
        axes.errorbar(x[label], values, yerr=errors, marker="o", capsize=3, label=label)
    _finish(figure, axes, path, labels)


def bars(path: Path, places: Sequence[str], series: Series, labels: tuple[str, str]) -> None:
    """Groups of bars with error bars, one group a place, one bar a label."""
    figure, axes = _figure(max(6.4, 1.2 * len(places)))
    width = 0.8 / len(series)
    for i, (label, points) in enumerate(series.items()):
        values, errors = zip(*points, strict=True)
        at = [place + (i - (len(series) - 1) / 2) * width for place in range(len(places))]
        axes.bar(at, values, width, yerr=errors, capsize=2, label=label)
    axes.set_xticks(range(len(places)), places)
    axes.axhline(0, color="black", linewidth=0.8)
    _finish(figure, axes, path, labels)


def _figure(width: float = 6.4) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, 4.0), dpi=150)


def _finish(figure: Any, axes: Any, path: Path, labels: tuple[str, str]) -> None:
    from matplotlib import pyplot

    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
