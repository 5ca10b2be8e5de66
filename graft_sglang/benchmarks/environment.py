"""What every published figure carries: machine, date, versions."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path


def environment() -> dict[str, str]:
    """Where and when this ran, and with which versions."""
    packages = ("graft-sglang", "numba", "numpy", "torch")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
        "load": f"{os.getloadavg()[0]:.1f} (1 minute average before the run)",
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
