"""Every setting of GRAFT: its name, default, validation and where it may come from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from graft_sglang.contracts import MAX_BUDGET

ENVIRONMENT_VARIABLE = "GRAFT_CONFIG"


class ConfigError(ValueError):
    """A setting is wrong; the message is one sentence that says what would be right."""


@dataclass(frozen=True, slots=True)
class GraftConfig:
    """Settings of one server. ``None`` means "decide from the other settings".

    Precedence: command-line flags, then ``--graft-config``, then the environment variable
    ``GRAFT_CONFIG`` (both a JSON document or a path to one), then the defaults.
    """

    edge_scorer: str = ""
    """Registry name of the EdgeScorer. Empty: ``tdes`` with a ``tdes_path``, else ``ddtree``."""
    tdes_path: str | None = None
    """Folder of a TDES checkpoint."""
    beta: float = 0.2
    """Scale of the TDES residual (Eq. 4)."""
    budget_policy: str = ""
    """Registry name of the BudgetPolicy. Empty: ``saba`` with a ``saba_path``, else ``fixed``."""
    saba_path: str | None = None
    """File with fitted gain and cost parameters."""
    saba_online: bool | None = None
    """Whether served rounds correct the fitted file. Default: where the policy gains by it."""
    budget: int = 64
    """Nodes of a tree for ``fixed``; the root is not counted."""
    max_budget: int | None = None
    """Largest tree ever built; sizes every buffer. Default: what the policy can ask for."""
    tree_builder: str = "best_first"
    """Registry name of the TreeBuilder."""
    candidates: int = 32
    """Candidates K a depth."""
    trace_dir: str | None = None
    """Folder that rounds are recorded to, for training and fitting."""
    imports: tuple[str, ...] = ()
    """Modules to import first, for scorers, policies and builders registered by decorator."""

    def __post_init__(self) -> None:
        if isinstance(self.imports, str):
            object.__setattr__(self, "imports", (self.imports,))
        object.__setattr__(self, "imports", tuple(self.imports))
        _check_int("budget", self.budget, 1, MAX_BUDGET)
        if self.max_budget is not None:
            _check_int("max_budget", self.max_budget, 1, MAX_BUDGET)
        _check_int("candidates", self.candidates, 1, MAX_BUDGET)
        if self.edge_scorer == "":
            object.__setattr__(self, "edge_scorer", "tdes" if self.tdes_path else "ddtree")
        if self.budget_policy == "":
            object.__setattr__(self, "budget_policy", "saba" if self.saba_path else "fixed")
        for name in ("edge_scorer", "budget_policy", "tree_builder"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ConfigError(f"GRAFT's {name} must be a registry name, not an empty value.")
        if self.saba_online is not None and not isinstance(self.saba_online, bool):
            raise ConfigError(
                f"GRAFT's saba_online must be true or false, not {self.saba_online!r}."
            )
        beta = self.beta
        if isinstance(beta, bool) or not isinstance(beta, int | float) or not 0 <= beta < math.inf:
            raise ConfigError(f"GRAFT's beta must be a number from 0 up, not {beta!r}.")
        for name in ("tdes_path", "saba_path", "trace_dir"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"GRAFT's {name} must be a path, not {value!r}.")

    def as_options(self) -> dict[str, Any]:
        """Every field by name, for ``ComponentContext.options``."""
        return asdict(self)


def resolve(
    flags: Mapping[str, Any], document: str | None = None, environment: str | None = None
) -> GraftConfig:
    """Merge the sources, most important last.

    Args:
        flags: fields set on the command line; ``None`` values are not set.
        document: the value of ``--graft-config``.
        environment: the value of ``GRAFT_CONFIG``.

    Raises:
        ConfigError: a source can't be read, has an unknown field or a wrong value.
    """
    merged: dict[str, Any] = {}
    if environment:
        merged.update(_read(environment, f"the environment variable {ENVIRONMENT_VARIABLE}"))
    if document:
        merged.update(_read(document, "--graft-config"))
    merged.update({name: value for name, value in flags.items() if value is not None})
    try:
        return GraftConfig(**merged)
    except TypeError as error:
        raise ConfigError(
            f"GRAFT's configuration has a value of the wrong type: {error}."
        ) from error


def _read(source: str, origin: str) -> dict[str, Any]:
    text = source
    if not source.lstrip().startswith("{"):
        path = Path(source)
        if not path.is_file():
            raise ConfigError(f"{origin} names '{source}', which is neither JSON nor a file.")
        text = path.read_text(encoding="utf-8")
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{origin} is not valid JSON: {error}.") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{origin} must hold a JSON object, not a {type(values).__name__}.")
    known = [f.name for f in fields(GraftConfig)]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ConfigError(
            f"{origin} has unknown settings {', '.join(unknown)}; known: {', '.join(known)}."
        )
    return values


def _check_int(name: str, value: Any, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(
            f"GRAFT's {name} must be a whole number from {low} to {high}, not {value!r}."
        )
