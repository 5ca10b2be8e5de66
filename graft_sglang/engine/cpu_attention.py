"""Attention on the CPU, with what ``torch_native`` lacks: verify windows and tree masks."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.attention.attention_registry import register_attention_backend
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.server_args import ATTENTION_BACKEND_CHOICES, DRAFT_ATTENTION_BACKEND_CHOICES
from torch.nn.functional import scaled_dot_product_attention

from graft_sglang.engine.cpu_platform import ATTENTION_BACKEND


class GraftCpuAttention(TorchNativeAttnBackend):
    """``torch_native`` plus windows of several new tokens a request.

    A window of ``w`` tokens is a drafter's block (bidirectional), a chain (causal) or a draft
    tree (``spec_info.custom_mask``: one [w, prefix + w] block a request, True = visible,
    row-major, concatenated). Its keys are the committed slots and the window's own.
    """

    def __init__(self, model_runner: Any) -> None:
        super().__init__(model_runner)
        for module in model_runner.model.modules():
            if isinstance(module, RadixAttention) and (
                module.logit_cap > 0 or module.is_cross_attention
            ):
                raise ValueError(
                    "This model's attention (a logit cap or cross attention) can't be computed "
                    "on a machine without an accelerator."
                )

    def forward_extend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        **kwargs: Any,
    ) -> torch.Tensor:
        if not forward_batch.forward_mode.is_target_verify():
            return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)
        if save_kv_cache and k is not None and v is not None:
            location = KVWriteLoc(forward_batch.out_cache_loc, self.swa_out_cache_loc)
            self.token_to_kv_pool.set_kv_buffer(layer, location, k, v)
        batch_size, heads = forward_batch.batch_size, layer.tp_k_head_num
        group, size = layer.tp_q_head_num // heads, layer.qk_head_dim
        # The query heads that share a key head become its rows: no key is copied for them.
        query = q.view(batch_size, -1, heads, group, size).transpose(1, 2)
        width = query.shape[2]
        output = q.new_empty(batch_size, width, heads, group, layer.v_head_dim)
        keys = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
        values = self.token_to_kv_pool.get_value_buffer(layer.layer_id)
        for row, (slots, mask) in enumerate(self._windows(layer, forward_batch)):
            found = scaled_dot_product_attention(
                query[row].reshape(1, heads, width * group, size),
                keys.index_select(0, slots).transpose(0, 1)[None].to(q.dtype),
                values.index_select(0, slots).transpose(0, 1)[None].to(q.dtype),
                attn_mask=mask,
                scale=layer.scaling,
            )
            output[row] = found.view(heads, width, group, -1).transpose(0, 1)
        return output.view(q.shape[0], layer.tp_q_head_num * layer.v_head_dim)

    def init_forward_metadata(self, forward_batch: Any) -> None:
        super().init_forward_metadata(forward_batch)
        self._slots: list[torch.Tensor] = []
        self._masks: dict[Any, list[torch.Tensor | None]] = {}
        if not forward_batch.forward_mode.is_target_verify():
            return
        table = self.req_to_token_pool.req_to_token
        window = forward_batch.out_cache_loc.view(forward_batch.batch_size, -1)
        rows = forward_batch.req_pool_indices.tolist()
        for i, length in enumerate(forward_batch.seq_lens.tolist()):
            self._slots.append(torch.cat([table[rows[i], :length].long(), window[i]]))

    def _windows(self, layer: Any, forward_batch: Any) -> Any:
        """Slots [prefix + w] and additive mask [w * group, prefix + w] (None: all visible).

        A row for each query head of a group; one pair a request.
        """
        sliding = layer.sliding_window_size
        if sliding is not None and sliding < 0:
            sliding = None
        bidirectional = layer.attn_type == AttentionType.ENCODER_ONLY
        group = layer.tp_q_head_num // layer.tp_k_head_num
        key = (bidirectional, sliding, group)
        if key not in self._masks:
            self._masks[key] = [
                None if mask is None else _additive(mask, group)
                for mask in self._build_masks(forward_batch, bidirectional, sliding)
            ]
        return zip(self._slots, self._masks[key], strict=True)

    def _build_masks(
        self, forward_batch: Any, bidirectional: bool, sliding: int | None
    ) -> list[torch.Tensor | None]:
        """Masks [w, prefix + w], True = visible."""
        width = forward_batch.out_cache_loc.numel() // forward_batch.batch_size
        flat = getattr(forward_batch.spec_info, "custom_mask", None)
        positions = forward_batch.positions.view(forward_batch.batch_size, width)
        masks: list[torch.Tensor | None] = []
        start = 0
        for row, slots in enumerate(self._slots):
            total = slots.numel()
            mask: torch.Tensor | None = None
            if not bidirectional:
                if flat is not None:
                    mask = flat[start : start + width * total].view(width, total)
                    start += width * total
                else:
                    mask = torch.ones(width, total, dtype=torch.bool).tril(total - width)
            if sliding is not None:
                prefix = torch.arange(total - width)
                keys = torch.cat([prefix, positions[row]])
                near = keys[None, :] >= positions[row][:, None] - sliding
                mask = near if mask is None else mask & near
            masks.append(mask)
        if flat is not None and not bidirectional and start != flat.numel():
            raise ValueError(f"the tree mask has {flat.numel()} entries, not {start}")
        return masks


def _additive(mask: torch.Tensor, group: int) -> torch.Tensor:
    """0 where visible, else -inf, each row ``group`` times: not made anew in every layer."""
    zeros = torch.zeros(mask.shape).masked_fill_(~mask, -torch.inf)
    return zeros.repeat_interleave(group, dim=0)


def install() -> None:
    """Offer the backend for targets and drafters."""

    @register_attention_backend(ATTENTION_BACKEND)
    def _create(runner: Any) -> GraftCpuAttention:
        return GraftCpuAttention(runner)

    for choices in (ATTENTION_BACKEND_CHOICES, DRAFT_ATTENTION_BACKEND_CHOICES):
        if ATTENTION_BACKEND not in choices:
            choices.append(ATTENTION_BACKEND)
