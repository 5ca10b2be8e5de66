"""SGLang's built-in DFlash worker on the CPU: the baseline a tree has to beat."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2


class _HostTensor(torch.Tensor):
    """A CPU tensor on which ``record_stream``, which torch lacks there, does nothing."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def record_stream(self, stream: Any) -> None:
        del stream


class CpuDFlashWorker(DFlashWorkerV2):
    """``DFlashWorkerV2`` with the one call removed that CPU tensors don't have."""

    def forward_batch_generation(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        lengths = batch.seq_lens
        if lengths is not None:
            batch.seq_lens = lengths.as_subclass(_HostTensor)
        try:
            return super().forward_batch_generation(batch, *args, **kwargs)
        finally:
            if isinstance(batch.seq_lens, _HostTensor):
                batch.seq_lens = lengths
