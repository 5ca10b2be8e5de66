"""The KV slots that a round writes, right after each request's prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_func
from sglang.srt.mem_cache.kv_loc_plan import KVLocPlan


@dataclass(slots=True)
class Window:
    """KV slots of ``width`` new columns a request, right after its prefix."""

    width: int
    slots: torch.Tensor
    """int64 [bs, width], virtual ids."""
    plan: KVLocPlan

    def positions(self, prefix_lens: torch.Tensor) -> torch.Tensor:
        """int64 [bs, width]: consecutive positions after each prefix."""
        columns = torch.arange(self.width, device=prefix_lens.device)
        return prefix_lens[:, None].to(torch.int64) + columns


def plan_window(batch: Any, target_runner: Any, width: int, host_lens: Any) -> Window:
    """Gather the reserved slots after each prefix and plan a forward that writes them."""
    slots = assign_extend_cache_locs_func(
        req_pool_indices=batch.req_pool_indices,
        req_to_token=target_runner.req_to_token_pool.req_to_token,
        start_offset=batch.seq_lens,
        end_offset=batch.seq_lens + width,
        batch_size=len(batch.reqs),
        draft_token_num=width,
        device=target_runner.device,
    )
    plan = target_runner.kv_index_translator.plan(
        req_pool_indices=batch.req_pool_indices,
        seq_lens=batch.seq_lens,
        seq_lens_cpu=host_lens,
        write_virtual=slots,
        read_extent=width,
    )
    return Window(width, slots.view(len(batch.reqs), width), plan)
