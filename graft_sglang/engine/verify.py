"""One target forward over a whole draft tree, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative.dflash_info import DFlashVerifyInput

from graft_sglang.engine.window import Window
from graft_sglang.transfer import copy_together
from graft_sglang.tree.verify_arrays import VerifyArrays


@dataclass(slots=True)
class Verified:
    """What the target said about every node."""

    output: Any
    """SGLang's ``GenerationBatchResult`` of the forward."""
    positions: torch.Tensor
    """int64 [bs * width]"""


def verify_tree(
    batch: Any, target_worker: Any, arrays: VerifyArrays, window: Window, host_lens: torch.Tensor
) -> Verified:
    """Run the target over the nodes of every tree of the batch.

    Args:
        arrays: of trees padded to ``window.width`` nodes.
        host_lens: int64 [bs] on the CPU, the committed prefix lengths.
    """
    device = target_worker.model_runner.device
    token_ids, positions, mask = copy_together(
        (arrays.token_ids, arrays.positions, arrays.mask), device
    )
    spec_input = DFlashVerifyInput(
        draft_token=token_ids,
        positions=positions,
        draft_token_num=window.width,
        custom_mask=mask,
        capture_hidden_mode=CaptureHiddenMode.FULL,
        kv_loc_plan=window.plan,
    )
    batch.out_cache_loc = window.slots.reshape(-1)
    kept = batch.seq_lens_cpu, batch.seq_lens_sum
    batch.seq_lens_cpu = host_lens + window.width
    batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())
    forward_batch, _ = spec_input.prepare_for_verify(batch, target_worker)
    batch.seq_lens_cpu, batch.seq_lens_sum = kept
    output = target_worker.forward_batch_generation(
        batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
    )
    return Verified(output, positions)


def compact_target_kv(
    target_runner: Any, window: Window, paths: torch.Tensor, lengths: torch.Tensor
) -> None:
    """Move the accepted nodes' KV to the columns right after the prefix.

    Args:
        paths: int64 [bs, P] on the CPU, node of each depth on the accepted path, -1 beyond it.
        lengths: int64 [bs] on the CPU, accepted draft nodes.
    """
    depth = torch.arange(paths.shape[1])
    moved = (depth <= lengths[:, None]) & (paths != depth)
    rows, columns = moved.nonzero(as_tuple=True)
    if not rows.numel():
        return
    physical = window.plan.write_ids(target_runner.kv_index_translator)
    physical = physical.view(window.slots.shape)
    target = physical[rows.to(physical.device), columns.to(physical.device)]
    source = physical[rows.to(physical.device), paths[rows, columns].to(physical.device)]
    target_runner.token_to_kv_pool.move_kv_cache(target, source)
