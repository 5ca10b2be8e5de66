"""The fitted file: everything ``saba``, ``saba_table`` and ``expected_throughput`` need of a fit,
and everything a reader needs to judge it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graft_sglang.budgeters.saba.cost import AffineCost, CostModel, CostTable
from graft_sglang.budgeters.saba.gain import Calibration, GainTable
from graft_sglang.contracts import MAX_BUDGET

FORMAT = "graft-saba"
VERSION = 1


@dataclass(frozen=True, slots=True)
class SabaDocument:
    """One fit for one (target, drafter, scorer, machine)."""

    target: str
    """Name of the target, for people."""
    target_fingerprint: str
    """``graft_sglang.fingerprint`` of its input embedding; empty: not checked."""
    drafter: str
    """Name of the drafter, for people."""
    edge_scorer: str
    hardware: str
    date: str
    depth: int
    """D of the drafter."""
    grid: tuple[int, ...]
    """Budgets to choose from, rising."""
    fallback_budget: int
    """Best fixed budget of the fit data: what a request gets whose state is not a number."""
    state_mean: tuple[float, float, float]
    """Mean [conf, degen, hist] of the fit data; hist is also what a request without history has."""
    phi: tuple[float, float, float]
    cost: AffineCost
    cost_table: CostTable
    gain_table: GainTable
    calibration: Calibration
    quality: dict[str, float] = field(default_factory=dict)
    """R2 of each fit, rounds used, outliers."""

    def save(self, path: Path) -> None:
        """Write the JSON file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self._as_json(), indent=1) + "\n", encoding="utf-8")

    def _as_json(self) -> dict[str, Any]:
        table, gains, calibration = self.cost_table, self.gain_table, self.calibration
        return {
            "format": FORMAT,
            "version": VERSION,
            "target": self.target,
            "target_fingerprint": self.target_fingerprint,
            "drafter": self.drafter,
            "edge_scorer": self.edge_scorer,
            "hardware": self.hardware,
            "date": self.date,
            "depth": self.depth,
            "grid": list(self.grid),
            "fallback_budget": self.fallback_budget,
            "state_mean": list(self.state_mean),
            "phi": list(self.phi),
            "cost": [self.cost.c0, self.cost.c1, self.cost.c2],
            "cost_table": {
                "budgets": table.budgets.tolist(),
                "prefix_lens": table.prefix_lens.tolist(),
                "seconds": table.values.tolist(),
            },
            "gain_table": {
                "weights": gains.weights.tolist(),
                "centres": gains.centres.tolist(),
                "budgets": gains.budgets.tolist(),
                "accepted_drafts": gains.values.tolist(),
            },
            "calibration": {
                "budgets": calibration.budgets.tolist(),
                "coefficients": calibration.coefficients.tolist(),
            },
            "quality": self.quality,
        }


def load(path: str | Path) -> SabaDocument:
    """Read and check a fitted file.

    Raises:
        ValueError: a missing, corrupt or foreign file, or values no policy can work with; one
            sentence that names the file and what is wrong.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(
            f"The SABA file '{file}' doesn't exist; make one with `graft-sglang fit-saba`."
        )
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"The SABA file '{file}' is not valid JSON: {error}.") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ValueError(f"'{file}' is not a SABA file: its format is not '{FORMAT}'.")
    if values.get("version") != VERSION:
        raise ValueError(
            f"The SABA file '{file}' has version {values.get('version')!r}, this package reads "
            f"{VERSION}; fit it again with `graft-sglang fit-saba`."
        )
    try:
        document = _parse(values)
        _check(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"is wrong: {error}"
        raise ValueError(
            f"The SABA file '{file}' {what.rstrip('.')}; fit it again with `graft-sglang fit-saba`."
        ) from error
    return document


def _parse(values: dict[str, Any]) -> SabaDocument:
    cost = AffineCost(*(float(c) for c in values["cost"]))
    table, gains = values["cost_table"], values["gain_table"]
    calibration = values["calibration"]
    return SabaDocument(
        target=str(values["target"]),
        target_fingerprint=str(values["target_fingerprint"]),
        drafter=str(values["drafter"]),
        edge_scorer=str(values["edge_scorer"]),
        hardware=str(values["hardware"]),
        date=str(values["date"]),
        depth=int(values["depth"]),
        grid=tuple(int(b) for b in values["grid"]),
        fallback_budget=int(values["fallback_budget"]),
        state_mean=_three(values["state_mean"]),
        phi=_three(values["phi"]),
        cost=cost,
        cost_table=CostTable(
            cost, _array(table["budgets"]), _array(table["prefix_lens"]), _array(table["seconds"])
        ),
        gain_table=GainTable(
            _array(gains["weights"]),
            _array(gains["centres"]),
            _array(gains["budgets"]),
            _array(gains["accepted_drafts"]),
        ),
        calibration=Calibration(
            _array(calibration["budgets"]), _array(calibration["coefficients"])
        ),
        quality=dict(values["quality"]),
    )


def _three(values: Any) -> tuple[float, float, float]:
    first, second, third = (float(v) for v in values)
    return first, second, third


def _array(values: Any) -> np.ndarray:
    return np.array(values, np.float64)


def _check(document: SabaDocument) -> None:
    grid = document.grid
    if not grid or list(grid) != sorted(set(grid)) or not 0 <= grid[0] <= grid[-1] <= MAX_BUDGET:
        raise ValueError(f"its grid must rise from 0 or more to at most {MAX_BUDGET}")
    if grid[-1] == 0:
        raise ValueError("its grid has no budget but 0")
    state, phi = np.array(document.state_mean), np.array(document.phi)
    line = document.cost
    if not np.isfinite([*state, *phi]).all():
        raise ValueError("phi or the mean state is not a number")
    if state @ phi <= 0:
        raise ValueError(f"phi . s is {state @ phi:.3g} on the mean state and must be positive")
    if not all(math.isfinite(c) for c in (line.c0, line.c1, line.c2)):
        raise ValueError("a cost parameter is not a number")
    _check_tables(document)
    budgets = np.array(grid, np.float64)
    models: tuple[CostModel, ...] = (line, document.cost_table)
    for model in models:
        curve = model.over(budgets)
        for prefix_len in document.cost_table.prefix_lens.tolist():
            seconds = curve.seconds(prefix_len)
            if not (np.isfinite(seconds) & (seconds > 0)).all():
                raise ValueError("a cost on the grid is not a positive number")


def _check_tables(document: SabaDocument) -> None:
    table, gains, calibration = document.cost_table, document.gain_table, document.calibration
    shapes = (
        (table.values, (len(table.prefix_lens), len(table.budgets))),
        (gains.values, (len(gains.centres), len(gains.budgets))),
        (gains.weights, (4,)),
        (calibration.coefficients, (len(calibration.budgets), 4)),
    )
    for array, shape in shapes:
        if array.shape != shape or not array.size or not np.isfinite(array).all():
            raise ValueError(
                f"a table of shape {list(array.shape)} should be {list(shape)}, finite"
            )
    for axis in (table.budgets, table.prefix_lens, gains.centres, gains.budgets):
        if not (np.diff(axis) > 0).all() or not np.isfinite(axis).all():
            raise ValueError("the axis of a table does not rise")
