"""Numba compilation with its on-disk cache where a place for it can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """``numba.njit`` that drops the cache instead of failing on a read-only installation."""
    return _compile(function, nogil=True)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """``jit`` for the helpers of a hot loop.

    Left to itself LLVM calls some of them, and not the same ones when it compiles as when the
    cache is loaded: the same loop then runs at half its speed.
    """
    return _compile(function, nogil=True, forceinline=True)


def _compile(function: Callable[..., Any], **options: bool) -> Callable[..., Any]:
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no place to write its cache to
        return numba.njit(**options)(function)
