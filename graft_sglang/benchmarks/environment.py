"""What every published figure carries: machine, date, versions."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version

import torch

from graft_sglang.hardware import describe


def environment() -> dict[str, str]:
    """Where and when this ran, and with which versions."""
    packages = ("graft-sglang", "numba", "numpy", "torch")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{describe(torch.device('cpu'))}, {platform.system()}",
        "load": f"{os.getloadavg()[0]:.1f} (1 minute average before the run)",
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }
