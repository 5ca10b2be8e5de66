"""SGLang's index kernel of a plain KV pool, whose own needs a GPU, as a read of its table."""

from __future__ import annotations

from typing import Any

import torch


class TableTranslator:
    """``KVIndexTranslator.pack_read_stream`` of a plain pool, as a read of ``req_to_token``."""

    reads_are_translated = False

    def __init__(self, table: torch.Tensor) -> None:
        self._table = table

    def pack_read_stream(
        self,
        plan: Any,
        *,
        req_pool_indices: torch.Tensor,
        seq_lens: torch.Tensor,
        indptr: torch.Tensor,
        out: torch.Tensor,
        **_: Any,
    ) -> None:
        rows = zip(req_pool_indices.tolist(), seq_lens.tolist(), indptr.tolist(), strict=False)
        for request, length, start in rows:
            out[start : start + length] = self._table[request, :length]
