"""Torch in place of the Triton kernels that SGLang's speculative path launches on any device."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType


def install() -> None:
    """Register the hooks; only on our CPU platform."""
    for target, hook, kind in (
        (
            "sglang.srt.mem_cache.memory_pool.MHATokenToKVPool._init_kv_copy_and_warmup",
            _use_native_move,
            HookType.REPLACE,
        ),
        (
            "sglang.srt.mem_cache.allocation.assign_req_to_token_pool_func",
            assign_req_to_token,
            HookType.REPLACE,
        ),
        ("sglang.srt.mem_cache.allocation.get_last_loc", last_loc, HookType.REPLACE),
        (
            "sglang.srt.model_executor.model_runner.ModelRunner._extend_forward_kwargs",
            _keep_embedding_dtype,
            HookType.AROUND,
        ),
        (
            "sglang.srt.models.dflash.DFlashAttention.__init__",
            _without_fused_qk_norm,
            HookType.AFTER,
        ),
    ):
        HookRegistry.register(target, hook, kind)


def _use_native_move(pool: Any) -> None:
    pool._kv_copy_config = None
    pool.use_native_move_kv_cache = True


def assign_req_to_token(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    batch_size: int,
) -> None:
    """Write ``out_cache_loc`` into columns ``start_offset .. end_offset`` of each request's row."""
    start = 0
    bounds = zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True)
    for row, begin, end in list(bounds)[:batch_size]:
        count = max(end - begin, 0)
        req_to_token[row, begin : begin + count] = out_cache_loc[start : start + count].to(
            req_to_token.dtype
        )
        start += count


def last_loc(
    req_to_token: torch.Tensor,
    req_pool_indices_tensor: torch.Tensor,
    prefix_lens_tensor: torch.Tensor,
) -> torch.Tensor:
    """Slot of the last token of each prefix, -1 where the prefix is empty."""
    from sglang.srt.mem_cache.allocation import get_last_loc_torch

    return get_last_loc_torch(req_to_token, req_pool_indices_tensor, prefix_lens_tensor)


def _keep_embedding_dtype(original: Any, runner: Any, forward_batch: Any, *args: Any) -> Any:
    """SGLang casts every input embedding to bfloat16; a float32 drafter must keep its own."""
    embeddings = forward_batch.input_embeds
    kwargs = original(runner, forward_batch, *args)
    if embeddings is not None:
        kwargs["input_embeds"] = embeddings.to(runner.dtype)
    return kwargs


def _without_fused_qk_norm(result: None, attention: Any, *args: Any, **kwargs: Any) -> None:
    """In bfloat16 the drafter's attention would launch a CUDA-only kernel."""
    attention.use_table_qk_norm_rope = False
