"""Faults of SGLang 0.5.23 that speculation with DFlash drafters runs into, mended by hooks."""

from __future__ import annotations

from sglang.srt.plugins.hook_registry import HookRegistry, HookType


def install() -> None:
    """Hooks that help on every platform."""
    HookRegistry.register(
        "sglang.srt.mem_cache.allocation_sizing.get_req_to_token_extra_context_len",
        _whole_reserve,
        HookType.AFTER,
    )


def _whole_reserve(extra: int) -> int:
    """Columns of a request's slot table beyond the context length.

    A DFlash decode reserves two verify windows ahead, but at page size 1 SGLang sizes the table
    for one: near the context limit slots are lost and the scheduler dies of its leak check.
    """
    from sglang.srt.mem_cache.allocation_sizing import (
        get_alloc_page_size,
        get_alloc_reserve_per_decode,
    )

    return max(extra, get_alloc_reserve_per_decode() + get_alloc_page_size() - 1)
