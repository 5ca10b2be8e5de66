"""FlashInfer's batch prefill with a paged KV cache and a custom mask, in plain torch.

The contract of ``BatchPrefillWithPagedKVCacheWrapper``: request ``i`` has the queries
``qo_indptr[i]:qo_indptr[i + 1]`` and the keys of the pages
``kv_indices[kv_indptr[i]:kv_indptr[i + 1]]``, the last page filled to ``kv_last_page_len[i]``. The
mask is the concatenation of every request's [queries, keys], row-major; packed, each request begins
at a byte and the lowest bit comes first. What lies beyond the last request's segment is not read.
"""

from __future__ import annotations

import numpy as np
import torch


def batch_prefill_paged(
    queries: torch.Tensor,
    pages: tuple[torch.Tensor, torch.Tensor],
    qo_indptr: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_indices: torch.Tensor,
    kv_last_page_len: torch.Tensor,
    custom_mask: torch.Tensor | None = None,
    packed_custom_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention output float [queries, heads, dim].

    Args:
        queries: float [queries, heads, dim]
        pages: keys and values, each float [pages, page_size, kv_heads, dim].
        custom_mask: bool, or ``packed_custom_mask`` uint8; exactly one of them.
    """
    keys, values = pages
    page_size, groups = keys.shape[1], queries.shape[1] // keys.shape[2]
    out = torch.empty_like(queries)
    start = 0
    for i in range(len(qo_indptr) - 1):
        rows = slice(int(qo_indptr[i]), int(qo_indptr[i + 1]))
        chosen = kv_indices[int(kv_indptr[i]) : int(kv_indptr[i + 1])].long()
        count = (len(chosen) - 1) * page_size + int(kv_last_page_len[i])
        k, v = (
            cache[chosen].flatten(0, 1)[:count].repeat_interleave(groups, dim=1)
            for cache in (keys, values)
        )
        shape = (rows.stop - rows.start, count)
        entries = shape[0] * shape[1]
        if custom_mask is not None:
            mask = custom_mask[start : start + entries].view(shape)
            start += entries
        else:
            size = (entries + 7) // 8
            bits = np.unpackbits(
                packed_custom_mask[start : start + size].numpy(), bitorder="little"
            )
            mask = torch.from_numpy(bits[:entries].astype(bool)).view(shape)
            start += size
        scores = torch.einsum("qhd,khd->hqk", queries[rows], k) * queries.shape[-1] ** -0.5
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        out[rows] = torch.einsum("hqk,khd->qhd", weights, v)
    return out
