"""Markdown tables and figures with their errors."""

from __future__ import annotations

from collections.abc import Sequence

from graft_sglang.evaluation.clustered import Estimate


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """A table; all columns but the first ``text_columns`` are right-aligned."""
    rule = ["---"] * text_columns + ["---:"] * (len(header) - text_columns)
    lines = [header, rule, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def plus_minus(estimate: Estimate, digits: int = 3) -> str:
    """``1.234 ± 0.056``."""
    return f"{estimate.value:.{digits}f} ± {estimate.se:.{digits}f}"


def percent(estimate: Estimate, digits: int = 1, signed: bool = False) -> str:
    """``+12.3 ± 0.5 %`` of a share."""
    sign = "+" if signed else ""
    return f"{100 * estimate.value:{sign}.{digits}f} ± {100 * estimate.se:.{digits}f} %"


def as_json(estimate: Estimate) -> dict[str, float | None]:
    """``value`` and ``se``; null where there is no number."""
    numbers = {"value": estimate.value, "se": estimate.se}
    return {name: number if number == number else None for name, number in numbers.items()}
