"""The drafter's batch: one block of root and mask tokens a request."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import (
    CaptureHiddenMode,
    ForwardBatch,
    ForwardMode,
)
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from graft_sglang.engine.window import Window


def draft_batch(
    batch: Any,
    block: Window,
    embed: torch.nn.Module,
    *,
    mask_token_id: int,
    embedding_scale: float,
    spec_info: Any,
) -> ForwardBatch:
    """A forward of ``block.width`` positions a request, from the bonus token on.

    Args:
        batch: the ``ScheduleBatch``; ``spec_info.bonus_tokens`` int64 [bs] are the roots.
        embed: the target's input embeddings, which a DFlash drafter borrows.
        spec_info: SGLang's description of a drafter's block, the same every round.
    """
    batch_size, block_size = block.slots.shape
    block_ids = torch.full_like(block.slots, mask_token_id)
    block_ids[:, 0] = batch.spec_info.bonus_tokens.view(-1)
    embeddings = embed(block_ids)
    if embedding_scale != 1.0:
        embeddings = embeddings * embedding_scale
    host_bound = block.plan.seq_lens_cpu + block_size
    return ForwardBatch(
        forward_mode=ForwardMode.TARGET_VERIFY,
        batch_size=batch_size,
        input_ids=block_ids.flatten(),
        req_pool_indices=batch.req_pool_indices,
        seq_lens=batch.seq_lens,
        out_cache_loc=block.slots.flatten(),
        seq_lens_sum=int(host_bound.sum()),
        seq_lens_cpu=host_bound,
        positions=block.positions(batch.seq_lens).flatten(),
        input_embeds=embeddings.view(-1, embeddings.shape[-1]),
        spec_algorithm=SpeculativeAlgorithm.DFLASH,
        spec_info=spec_info,
        capture_hidden_mode=CaptureHiddenMode.NULL,
        global_num_token_non_padded_cpu=batch_size * block_size,
        can_run_decode_cuda_graph=batch.can_run_decode_cuda_graph,
    )
