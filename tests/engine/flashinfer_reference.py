"""FlashInfer's batch prefill with a paged KV cache and a custom mask, in plain torch.

The contract of ``BatchPrefillWithPagedKVCacheWrapper`` (flashinfer 0.7.2, ``prefill.py``): request
``i`` has the queries ``qo_indptr[i]:qo_indptr[i + 1]`` and the keys of the pages
``kv_indices[kv_indptr[i]:kv_indptr[i + 1]]``, the last page filled to ``kv_last_page_len[i]``. The
mask is the concatenation of every request's [queries, keys], row-major; packed, each request begins
at a byte and the lowest bit comes first. What lies beyond the last request is never read.
"""

from __future__ import annotations

from typing import Any

import torch


class PagedPrefillReference:
    """``plan`` and ``run`` of the wrapper, and their old names, which SGLang uses.

    Args:
        use_cuda_graph: keep the buffers from plan to plan, what a shorter plan leaves included.
        custom_mask_buf: uint8, with ``use_cuda_graph`` alone; decides there whether masks are used.
    """

    def __init__(
        self, use_cuda_graph: bool = False, custom_mask_buf: torch.Tensor | None = None
    ) -> None:
        self.is_cuda_graph_enabled = use_cuda_graph
        self._custom_mask_buf = custom_mask_buf
        self._indices_buf = torch.zeros(0, dtype=torch.int32)

    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        custom_mask: torch.Tensor | None = None,
        packed_custom_mask: torch.Tensor | None = None,
        **tuning: Any,
    ) -> None:
        """int32 [bs + 1], [bs + 1], [pages], [bs]; the mask bool or packed as uint8, or neither."""
        self.qo_indptr, self.kv_indptr = qo_indptr.clone(), paged_kv_indptr.clone()
        self.last_page_len, self.page_size = paged_kv_last_page_len.clone(), page_size
        self.groups = num_qo_heads // num_kv_heads
        pages = self.kv_indptr.diff() - 1
        sizes = (self.qo_indptr.diff() * (pages * page_size + self.last_page_len)).tolist()
        if packed_custom_mask is None and custom_mask is not None:
            segments = custom_mask[: sum(sizes)].split(sizes)
            packed_custom_mask = torch.cat([pack_bits(segment) for segment in segments])
        self.mask_starts = [0]
        for size in sizes:
            self.mask_starts.append(self.mask_starts[-1] + (size + 7) // 8)
        if not self.is_cuda_graph_enabled:
            self._custom_mask_buf = packed_custom_mask
            self._indices_buf = paged_kv_indices.clone()
            return
        if packed_custom_mask is not None:
            if self._custom_mask_buf is None:
                raise ValueError("custom_mask_buf must be initialized in cuda graph mode")
            self._custom_mask_buf[: len(packed_custom_mask)] = packed_custom_mask
        grown = max(len(self._indices_buf), len(paged_kv_indices))
        kept, self._indices_buf = self._indices_buf, torch.zeros(grown, dtype=torch.int32)
        self._indices_buf[: len(kept)] = kept
        self._indices_buf[: len(paged_kv_indices)] = paged_kv_indices

    def run(
        self,
        q: torch.Tensor,
        paged_kv_cache: tuple[torch.Tensor, torch.Tensor],
        *,
        causal: bool = False,
        sm_scale: float | None = None,
    ) -> torch.Tensor:
        """Float [queries, heads, dim].

        Args:
            q: float [queries, heads, dim]
            paged_kv_cache: keys and values, each float [pages, page_size, kv_heads, dim].
            causal: read only without a mask: the last query sees all keys.
        """
        keys, values = paged_kv_cache
        scale = q.shape[-1] ** -0.5 if sm_scale is None else sm_scale
        out = torch.zeros_like(q)
        for i in range(len(self.qo_indptr) - 1):
            rows = slice(int(self.qo_indptr[i]), int(self.qo_indptr[i + 1]))
            pages = self._indices_buf[int(self.kv_indptr[i]) : int(self.kv_indptr[i + 1])].long()
            count = (len(pages) - 1) * self.page_size + int(self.last_page_len[i])
            k, v = (
                cache[pages].flatten(0, 1)[:count].repeat_interleave(self.groups, dim=1)
                for cache in (keys, values)
            )
            visible = self._visible(i, rows.stop - rows.start, count, causal)
            scores = torch.einsum("qhd,khd->hqk", q[rows], k) * scale
            weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
            out[rows] = torch.einsum("hqk,khd->qhd", weights, v)
        return out

    def _visible(self, request: int, queries: int, keys: int, causal: bool) -> torch.Tensor:
        if self._custom_mask_buf is not None:
            start, end = self.mask_starts[request : request + 2]
            return unpack_bits(self._custom_mask_buf[start:end], queries * keys).view(queries, keys)
        everything = torch.ones(queries, keys, dtype=torch.bool)
        return everything.tril(keys - queries) if causal else everything

    begin_forward = plan
    forward = run


def pack_bits(bits: torch.Tensor) -> torch.Tensor:
    """uint8 [ceil(n / 8)] of bool [n], the lowest bit first."""
    padded = torch.nn.functional.pad(bits.to(torch.uint8), (0, -len(bits) % 8)).view(-1, 8)
    return (padded << torch.arange(8, dtype=torch.uint8)).sum(1).to(torch.uint8)


def unpack_bits(packed: torch.Tensor, count: int) -> torch.Tensor:
    """bool [count]"""
    bits = packed[:, None] >> torch.arange(8, dtype=torch.uint8) & 1
    return bits.flatten()[:count].bool()
