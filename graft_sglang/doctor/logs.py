"""The lines of a log that say why something failed."""

from __future__ import annotations

LONGEST = 300
"""Characters kept of a line."""


def useful_lines(log: str, count: int = 6) -> list[str]:
    """The last lines that are neither empty, nor frames of a traceback, nor warnings."""
    kept = []
    for line in log.splitlines():
        # A progress bar rewrites its line; indented lines are frames and their source.
        line = line.rsplit("\r", 1)[-1].rstrip()
        if line and not line[0].isspace() and "Warning" not in line and "%|" not in line:
            kept.append(line[:LONGEST])
    return kept[-count:]
