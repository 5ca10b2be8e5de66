"""Numba compilation with its on-disk cache where a place for it can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no place to write its cache to
        return numba.njit(**options)(function)


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """``numba.njit`` that drops the cache instead of failing on a read-only installation."""
    return _compile(function, nogil=True)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """``jit`` for the helpers of a hot loop.

    Left to itself LLVM calls some of them, and not the same ones when it compiles as when the
    cache is loaded: the same loop then runs at half its speed.
    """
    return _compile(function, nogil=True, forceinline=True)


def reassociating(function: Callable[..., Any]) -> Callable[..., Any]:
    """``inlined`` whose sums may be taken in any order, and so in vector registers."""
    return _compile(function, nogil=True, forceinline=True, fastmath={"reassoc", "contract"})


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(address), generate


@intrinsic
def prefetch(typing_context: Any, address: Any) -> Any:
    """In a kernel: have the cache line at ``address`` loaded, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = number(0), number(3), number(1)
        builder.call(function, [pointer, read, keep, data])
        return context.get_dummy_value()

    return types.none(types.int64), generate


@inlined
def array_at(address: int, shape: Any, dtype: Any) -> Any:
    """In a kernel: the C-contiguous array of ``shape`` at ``Tensor.data_ptr()``.

    Handing the address over costs a tenth of ``Tensor.numpy()``. The caller keeps the tensor
    alive and answers for its layout, which ``on_host`` sees to.
    """
    return numba.carray(_pointer(address), shape, dtype)
