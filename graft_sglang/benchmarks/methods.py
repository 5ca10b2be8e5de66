"""Names of methods, as ``bench serve`` takes them, and what a server is told for each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

PLAIN, DFLASH = "none", "dflash"
_GRAFT = re.compile(r"(?P<scorer>\w+)(@(?P<beta>[\d.]+))?:(?P<policy>\w+)")


@dataclass(frozen=True, slots=True)
class Method:
    """A way to decode."""

    name: str
    server: str
    """``none``, ``dflash`` or ``graft``: which server answers."""
    options: dict[str, Any] | None = None
    """For the ``graft`` server's switch file."""


def parse_method(name: str) -> Method:
    """``none``, ``dflash``, or ``scorer[@beta]:budget``, ``scorer[@beta]:policy``.

    Raises:
        ValueError: the name has another form.
    """
    if name in (PLAIN, DFLASH):
        return Method(name, name)
    match = _GRAFT.fullmatch(name)
    if match is None:
        raise ValueError(
            f"'{name}' is no method: say 'none', 'dflash', 'ddtree:64', 'tdes@0.4:saba' and so on."
        )
    options: dict[str, Any] = {"edge_scorer": match["scorer"], "budget_policy": match["policy"]}
    if match["policy"].isdigit():
        options |= {"budget_policy": "fixed", "budget": int(match["policy"])}
    if match["beta"]:
        options["beta"] = float(match["beta"])
    return Method(name, "graft", options)
