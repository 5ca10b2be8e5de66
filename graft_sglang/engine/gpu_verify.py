"""Verifying trees on a GPU: only with attention that reads their masks, and never without one.

What was only read in SGLang 0.5.23 (paths below ``sglang/srt``), never run on a GPU:

- Without ``--attention-backend`` SGLang takes ``fa3`` on Hopper and ``trtllm_mha`` on Blackwell
  (``arg_groups/model_override_base.py:277``), long before our ``handle_server_args``. Both ignore
  a verify's mask.
- FlashInfer's prefill kernel takes 16-bit queries and heads of a multiple of 64; other sizes are
  not refused, but read beyond the memory (flashinfer issues 191 and 4299).
- A verify of another width than the captured one runs eagerly
  (``model_executor/runner/decode_cuda_graph_runner.py:860``), also past the prefill graphs, which
  no verify may use (``prefill_cuda_graph_runner.py:1397``). An eager verify plans its attention
  from the live mask (``eager_runner.py:299``).
- A captured verify of the DFlash family has no mask (``decode_cuda_graph_runner.py:2114``).
  FlashInfer then refuses the first tree, Triton would silently verify it as a chain.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from graft_sglang.config import ConfigError
from graft_sglang.engine.startup import NAME, load_config

MASKED_ATTENTION = ("flashinfer", "triton")
"""GPU attention backends that read a verify window's mask; the others would ignore it."""

FLASHINFER_HEAD = 64
"""FlashInfer's kernels take heads of a multiple of it."""

_FLOAT32 = ("float32", "float", torch.float32)


def install() -> None:
    """Hooks for the default backend and for captured verifies; they change GRAFT servers only."""
    HookRegistry.register(
        "sglang.srt.arg_groups.model_override_base.get_default_attn_backend",
        _default_backend,
        HookType.AFTER,
    )
    HookRegistry.register(
        "sglang.srt.speculative.dflash_utils.resolve_dflash_verify_mask_policy",
        _always_masked,
        HookType.AFTER,
    )


def _default_backend(
    backend: str, server_args: Any, use_mla_backend: bool, model_config: Any
) -> str | None:
    """The backend of a server started without ``--attention-backend``; ``None`` keeps SGLang's."""
    from sglang.srt.arg_groups.model_override_base import resolving_view
    from sglang.srt.platforms import current_platform

    algorithm = resolving_view(server_args).speculative_algorithm
    if not _is_ours(algorithm) or current_platform.is_out_of_tree():
        return None
    return preferred_backend(int(model_config.head_dim), model_config.dtype)


def _always_masked(policy: tuple[str, bool], attn_backend: Any) -> tuple[str, bool] | None:
    from sglang.srt.runtime_context import get_spec

    return (policy[0], True) if _is_ours(get_spec().speculative_algorithm) else None


def _is_ours(algorithm: str | None) -> bool:
    return (algorithm or "").upper() == NAME


def preferred_backend(head_dim: int, dtype: torch.dtype | str) -> str:
    """FlashInfer where its kernels serve the model, else Triton."""
    return "triton" if why_not_flashinfer(head_dim, dtype) else "flashinfer"


def why_not_flashinfer(head_dim: int, dtype: torch.dtype | str) -> str:
    """What keeps FlashInfer's kernels from serving such a model, in words; empty if nothing does.

    Args:
        dtype: of the activations; as a string, as ``--dtype`` takes it (``auto`` is never float32).
    """
    if dtype in _FLOAT32:
        return "float32"
    if head_dim % FLASHINFER_HEAD:
        return f"heads of {head_dim} (only multiples of {FLASHINFER_HEAD})"
    return ""


def check_attention(server_args: Any) -> None:
    """On a GPU: attention that reads tree masks, for target and drafter; graphs only if asked for.

    A drafter that FlashInfer can't serve gets Triton, unless its backend was named.

    Raises:
        ConfigError: a backend that ignores masks, or FlashInfer for a model it can't serve.
    """
    base = server_args.attention_backend
    prefill = server_args.prefill_attention_backend or base
    target = {prefill, server_args.decode_attention_backend or base}
    wrong = sorted(target - set(MASKED_ATTENTION))
    if wrong:
        raise ConfigError(
            f"GRAFT needs an attention backend that reads tree masks ("
            f"{' or '.join(MASKED_ATTENTION)}), not {wrong[0]}: set --attention-backend."
        )
    if "flashinfer" in target:
        reason = _why_not_for(server_args.model_path, server_args)
        if reason:
            raise ConfigError(
                f"FlashInfer can't serve this target's {reason}: use --attention-backend triton."
            )
    drafter = server_args.speculative_draft_attention_backend
    if (drafter or prefill) == "flashinfer":
        reason = _why_not_for(server_args.speculative_draft_model_path, server_args)
        if reason and drafter:
            raise ConfigError(
                f"FlashInfer can't serve this drafter's {reason}: use "
                f"--speculative-draft-attention-backend triton."
            )
        if reason:
            server_args.speculative_draft_attention_backend = "triton"
    _graphs_only_if_asked_for(server_args)


def _why_not_for(path: str, server_args: Any) -> str:
    config = load_config(path, server_args, "model")
    config = getattr(config, "text_config", None) or config
    head_dim = getattr(config, "head_dim", None) or (
        config.hidden_size // config.num_attention_heads
    )
    return why_not_flashinfer(int(head_dim), server_args.dtype)


def _graphs_only_if_asked_for(server_args: Any) -> None:
    """Decode graphs are off, as they were never run here, unless the user names their backend.

    SGLang keeps in ``_cuda_graph_config_locked`` which settings did not come from its defaults.
    """
    from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, with_phase

    config = server_args.cuda_graph_config
    asked = (Phase.DECODE, "backend") in getattr(server_args, "_cuda_graph_config_locked", ())
    if asked and config.decode.backend == Backend.FULL:
        return
    server_args.cuda_graph_config = with_phase(config, Phase.DECODE, backend=Backend.DISABLED)
