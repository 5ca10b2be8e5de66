"""Run by ``test_triton_contract.py`` in a process of its own, under Triton's interpreter.

SGLang's Triton attention, kernel included, on the batches of ``verify_case.py``. Prints the largest
error of a node's logits, eager and captured, and with a wrong mask.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from flashinfer_reference import PagedPrefillReference
from sglang.kernels.ops.attention.extend_attention import extend_attention_fwd
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.layers.attention.verify_mask import VerifyMask
from sglang.srt.speculative.eagle_utils import TreeMaskMode
from table_translator import TableTranslator
from verify_case import CONTEXT, Target, make_case, node_logits

MOST = 8
"""Requests that the backend's buffers hold."""


class TritonTarget(Target):
    """Attends with SGLang's Triton backend."""

    def __init__(self, case: Any, captured: bool, padded: int = 0, **kwargs: Any) -> None:
        super().__init__(case, PagedPrefillReference(use_cuda_graph=captured), padded, **kwargs)
        self.backend = object.__new__(TritonAttnBackend)
        width = case.tree.token_ids.shape[1]
        vars(self.backend).update(
            device="cpu", dllm_attention=None, window_kv_indptr=None, sliding_window_size=None,
            use_sliding_window_kv_pool=False, max_context_len=CONTEXT, swa_v_head_dim=None,
            target_verify_num_tokens_per_req=width, dcp_size=1, topk=1, num_draft_tokens=width,
            kv_index_translator=TableTranslator(case.table),
            kv_indptr=torch.zeros(MOST + 1, dtype=torch.int32),
            qo_indptr=torch.zeros(MOST + 1, dtype=torch.int64),
            mask_indptr=torch.zeros(MOST + 1, dtype=torch.int64),
            cuda_graph_kv_indices=torch.full((MOST * CONTEXT,), 7),
            # Of another batch: all visible.
            _verify_mask=VerifyMask(
                buffer=torch.ones(MOST * width * (CONTEXT + width), dtype=torch.uint8),
                mode=TreeMaskMode.FULL_MASK,
                max_bs=MOST,
            ),
        )  # fmt: skip

    def plan(self, forward_batch: Any) -> None:
        if not self.captured:
            self.backend.init_forward_metadata(forward_batch)
            return
        spec, mode = forward_batch.spec_info, forward_batch.forward_mode
        size = forward_batch.batch_size
        self.backend._apply_cuda_graph_metadata(
            None, size, forward_batch.req_pool_indices, forward_batch.seq_lens, mode, spec
        )
        self.backend.forward_metadata = self.backend._build_cuda_graph_forward_metadata(
            size, mode, spec
        )

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> torch.Tensor:
        seen, out = self.backend.forward_metadata, torch.zeros_like(q, dtype=torch.float32)
        extend_attention_fwd(
            q.float(), k.float().contiguous(), v.float().contiguous(), out, keys.float(),
            values.float(), seen.qo_indptr, seen.kv_indptr, seen.kv_indices, seen.custom_mask,
            True, seen.mask_indptr, seen.max_extend_len, 1.0, 1.0,
        )  # fmt: skip
        return out.double()


def _flip_a_bit(forward: Any) -> None:
    """The root of the first tree then sees one of its children."""
    forward.spec_info.custom_mask = forward.spec_info.custom_mask.clone()
    forward.spec_info.custom_mask[int(forward.seq_lens[0]) + 1] ^= True


def _unmask(forward: Any) -> None:
    forward.spec_info.custom_mask = None


def main() -> None:
    errors = {}
    for page_size in (1, 16):
        case = make_case(page_size)
        for name, target in {
            "eager": TritonTarget(case, captured=False),
            "captured": TritonTarget(case, captured=True, padded=2),
            "wrong bit": TritonTarget(case, captured=False, spoil=_flip_a_bit),
            "no mask": TritonTarget(case, captured=True, spoil=_unmask),
        }.items():
            errors[f"{name}, page {page_size}"] = case.largest_error(node_logits(target))
    json.dump(errors, sys.stdout)


if __name__ == "__main__":
    main()
