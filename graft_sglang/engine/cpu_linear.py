"""Float32 linear layers on the CPU, their weights laid out once for oneDNN.

For a product of few rows torch's float32 ``linear`` lays the whole weight out anew at each call,
which takes longer than the product itself. oneDNN keeps the layout.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from torch.nn.functional import linear

from graft_sglang.engine.cpu_threads import all_cores

_UPDATER = "sglang.srt.model_executor.model_runner_components.weight_updater.WeightUpdater"
_UPDATES = (
    "update_weights_from_disk",
    "update_weights_from_tensor",
    "update_weights_from_ipc",
    "load_weights_from_distributed",
    "end_weight_update",
)

TYPICAL_ROWS = 64
"""Rows that the layout is chosen for; the one for a single row is half as fast with many."""

_updates = 0
"""Weight updates so far; a layout made before the last one is stale."""


def install() -> None:
    """Register the hooks; only on our CPU platform."""
    HookRegistry.register(
        "sglang.srt.layers.quantization.unquant.UnquantizedLinearMethod.apply",
        _apply,
        HookType.AROUND,
    )
    HookRegistry.register(
        "sglang.srt.layers.logits_processor.LogitsProcessor._compute_lm_head",
        _compute_lm_head,
        HookType.AROUND,
    )
    for name in _UPDATES:
        HookRegistry.register(f"{_UPDATER}.{name}", _forget_layouts, HookType.AFTER)


def packed_linear(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """``torch.nn.functional.linear``; from a layout kept with ``weight`` where that is faster.

    Args:
        rows: [..., E], the dtype of ``weight``.
        weight: [N, E]; a float32 parameter gets a copy of its own size.
        bias: [N]

    Returns:
        [..., N]
    """
    if not weight.is_cpu:
        return linear(rows, weight, bias)
    with all_cores():
        if (
            weight.dtype is not torch.float32
            or rows.dtype is not torch.float32
            or not isinstance(weight, torch.nn.Parameter)
            or rows.numel() == rows.shape[-1]  # one row reads the weight as it lies
        ):
            return linear(rows, weight, bias)
        known = getattr(weight, "graft_layout", None)
        if known is None or known[0] != _updates:
            layout = torch.ops.mkldnn._reorder_linear_weight(weight.data, TYPICAL_ROWS)
            known = (_updates, layout)
            weight.graft_layout = known  # type: ignore[attr-defined]
        return torch.ops.mkldnn._linear_pointwise(rows, known[1], bias, "none", [], "")


def _apply(
    original: Any, method: Any, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    del original, method
    return packed_linear(x, layer.weight, bias)


def _compute_lm_head(
    original: Any,
    processor: Any,
    hidden_states: torch.Tensor,
    lm_head: Any,
    embedding_bias: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:
    weight = getattr(lm_head, "weight", None)
    if (
        isinstance(weight, torch.nn.Parameter)
        and weight.dtype is torch.float32
        and hidden_states.dtype is torch.float32
        and not hasattr(lm_head, "apply_lora")
        and processor.rl_on_policy_target is None
        and options.get("out") is None
    ):
        return packed_linear(hidden_states, weight)
    return original(processor, hidden_states, lm_head, embedding_bias, **options)


def _forget_layouts(result: Any, *args: Any, **kwargs: Any) -> None:
    global _updates
    _updates += 1
