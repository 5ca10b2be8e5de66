"""The machine a figure was measured on, as one string to compare and to read."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch


def describe(device: torch.device | None = None) -> str:
    """Name of the accelerator, or of the processor with its core count.

    Args:
        device: where the target runs; ``None``: the accelerator if there is one.
    """
    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor_name()}, {os.cpu_count()} cores"


def processor_name() -> str:
    """The processor's name, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
