"""SGLang on a machine without an accelerator: an out-of-tree platform on plain torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform

from graft_sglang.engine.cpu_threads import use_cores

ATTENTION_BACKEND = "graft_cpu"

_REPLACED_BACKENDS = (None, "intel_amx", "torch_native", ATTENTION_BACKEND)


class GraftCpuPlatform(CpuDeviceMixin, SRTPlatform):
    """Plain torch on the CPU: no Triton, no graphs, no ``sgl_kernel``.

    SGLang's own CPU engine imports ``sgl_kernel``, whose stock wheel needs libcuda.
    """

    _enum = PlatformEnum.OOT
    capabilities = PlatformCapabilities()

    def apply_server_args_defaults(self, server_args: Any) -> None:
        """Choose our attention backend, a superset of ``torch_native``.

        For ``--device cpu`` SGLang has by now filled in ``intel_amx`` (``torch_native`` on Arm),
        which can't be told from the user's own choice and can't run here.

        Raises:
            ValueError: a backend or a parallel size that can't run here.
        """
        if server_args.attention_backend not in _REPLACED_BACKENDS:
            raise ValueError(
                f"On a machine without an accelerator --attention-backend must be "
                f"{ATTENTION_BACKEND}, not {server_args.attention_backend}; leave it out."
            )
        server_args.attention_backend = ATTENTION_BACKEND
        if server_args.tp_size > 1 and server_args.speculative_algorithm is not None:
            raise ValueError(
                "On a machine without an accelerator speculation needs --tp-size 1; leave it out."
            )

    def init_backend(self) -> None:
        """Set the number of threads."""
        use_cores()

    def get_device(self, device_id: int = 0) -> str:
        """The device of a server started without ``--device``, which SGLang treats as a string."""
        return "cpu"

    def get_default_attention_backend(self) -> str:
        return ATTENTION_BACKEND

    def get_default_speculative_draft_attention_backend(self, algorithm: str) -> str:
        return ATTENTION_BACKEND

    def supports_speculative_draft_attention_backend(self, algorithm: str, backend: str) -> bool:
        return backend == ATTENTION_BACKEND

    def supports_speculative_algorithm(self, algorithm: str) -> bool:
        return algorithm in ("DFLASH", "GRAFT")

    def get_speculative_worker_cls(self, algorithm: str) -> type | None:
        if algorithm != "DFLASH":
            return None
        from graft_sglang.engine.cpu_dflash import CpuDFlashWorker

        return CpuDFlashWorker

    def get_speculative_cache_locs_fn(self) -> Callable[..., torch.Tensor]:
        return gather_cache_locs


def gather_cache_locs(
    *,
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    batch_size: int,
    draft_token_num: int,
    device: torch.device | str,
) -> torch.Tensor:
    """Slots of ``draft_token_num`` columns a request from ``start_offset`` on.

    Returns:
        int64 [batch_size * draft_token_num], row-major.
    """
    del end_offset, batch_size
    columns = start_offset.to(torch.int64)[:, None] + torch.arange(draft_token_num, device=device)
    return req_to_token[req_pool_indices.to(torch.int64)[:, None], columns].reshape(-1).long()


def is_active() -> bool:
    """Whether this process runs on our platform."""
    from sglang.srt.platforms import current_platform

    return isinstance(current_platform, GraftCpuPlatform)
