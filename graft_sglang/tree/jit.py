"""Numba compilation with its on-disk cache where a place for it can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """``numba.njit`` that drops the cache instead of failing on a read-only installation."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba found no place to write its cache to
        return numba.njit(nogil=True)(function)
