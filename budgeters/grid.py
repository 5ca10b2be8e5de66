"""Budgets two an octave, and no tree at all: the grid of whoever has none fitted."""

from __future__ import annotations

STEPS = (0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512, 724, 1024)


def steps_to(top: int) -> list[int]:
    """The steps below ``top``, and ``top``."""
    return [*(b for b in STEPS if b < top), top]
