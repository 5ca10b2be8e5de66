"""SGLang's built-in DFlash worker on the CPU: the baseline a tree has to beat."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2

from graft_sglang.engine.cpu_linear import packed_linear


class _HostTensor(torch.Tensor):
    """A CPU tensor on which ``record_stream``, which torch lacks there, does nothing."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def record_stream(self, stream: Any) -> None:
        del stream


class CpuDFlashWorker(DFlashWorkerV2):
    """``DFlashWorkerV2`` on CPU tensors, with our product for its head."""

    def forward_batch_generation(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        lengths = batch.seq_lens
        if lengths is not None:
            batch.seq_lens = lengths.as_subclass(_HostTensor)
        try:
            return super().forward_batch_generation(batch, *args, **kwargs)
        finally:
            if isinstance(batch.seq_lens, _HostTensor):
                batch.seq_lens = lengths

    def _greedy_sample_from_vocab_parallel_head(
        self, *, hidden_states: torch.Tensor, lm_head: Any, chunk_size: int = 256
    ) -> torch.Tensor:
        weight, shard = lm_head.weight, getattr(lm_head, "shard_indices", None)
        if shard is not None and (shard.num_added_elements or shard.num_org_elements < len(weight)):
            return super()._greedy_sample_from_vocab_parallel_head(
                hidden_states=hidden_states, lm_head=lm_head, chunk_size=chunk_size
            )
        return packed_linear(hidden_states.to(weight.dtype), weight).argmax(dim=-1)
