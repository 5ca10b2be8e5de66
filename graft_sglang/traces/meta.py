"""What all rounds of a trace folder share: ``meta.json``."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

FORMAT_VERSION = 1
META_FILE = "meta.json"


@dataclass(frozen=True, slots=True)
class TraceMeta:
    """The pair and the shapes that a folder's rounds were recorded with."""

    target_fingerprint: str
    """``graft_sglang.fingerprint`` of the target's input embedding."""
    depth: int
    """D"""
    candidates: int
    """K"""
    drafter: str
    """The drafter's name; not compared, because the same drafter may be served from two paths."""
    date: str
    """When the folder was begun."""
    format_version: int = FORMAT_VERSION

    def conflict(self, other: TraceMeta) -> str | None:
        """Why rounds of ``other`` can't join a folder of this; ``None`` if they can."""
        for name, text in _COMPARED.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"its {text} is {mine}, not {theirs}"
        return None


_COMPARED = {
    "format_version": "format version",
    "target_fingerprint": "target's fingerprint",
    "depth": "draft depth D",
    "candidates": "number of candidates K",
}


def load_meta(folder: Path) -> TraceMeta:
    """Read ``meta.json``.

    Raises:
        ValueError: it isn't there, isn't readable, lacks a field or has another format version.
    """
    path = folder / META_FILE
    if not path.is_file():
        raise ValueError(f"'{folder}' is not a trace folder: it has no {META_FILE}.")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"'{path}' is not readable JSON: {error}.") from error
    names = {field.name for field in fields(TraceMeta)}
    if not isinstance(values, dict) or set(values) != names:
        raise ValueError(f"'{path}' must hold exactly the fields {', '.join(sorted(names))}.")
    meta = TraceMeta(**values)
    if meta.format_version != FORMAT_VERSION:
        raise ValueError(
            f"'{folder}' has trace format {meta.format_version}; this version reads "
            f"{FORMAT_VERSION}."
        )
    return meta


def save_meta(folder: Path, meta: TraceMeta) -> None:
    """Write ``meta.json`` in one step."""
    temporary = folder / f"{META_FILE}.{os.getpid()}.tmp"
    temporary.write_text(json.dumps(asdict(meta), indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, folder / META_FILE)
