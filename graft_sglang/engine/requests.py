"""Requests that a tree can't serve losslessly: answered with a 4xx before they are queued."""

from __future__ import annotations

from typing import Any

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from graft_sglang.engine.cpu_platform import is_active as on_our_cpu_platform

# SGLang's DFlash plumbing never feeds committed tokens to these penalties: they would be dropped.
_NEUTRAL_PENALTIES = {
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
}


def install() -> None:
    """Check every request in the tokenizer process, where an error becomes a 400."""
    HookRegistry.register(
        "sglang.srt.managers.tokenizer_manager.TokenizerManager._validate_one_request",
        _before_validation,
        HookType.BEFORE,
    )


def refusal(obj: Any) -> str | None:
    """Why this ``GenerateReqInput`` can't be served losslessly; ``None`` if it can."""
    parameters = getattr(obj, "sampling_params", None) or {}
    for name, neutral in _NEUTRAL_PENALTIES.items():
        value = parameters.get(name)
        if value is not None and float(value) != neutral:
            return f"GRAFT does not serve {name} (leave it at {neutral:g})"
    if getattr(obj, "custom_logit_processor", None):
        return "GRAFT does not serve custom_logit_processor"
    if getattr(obj, "return_hidden_states", False):
        return "GRAFT does not serve return_hidden_states"
    if getattr(obj, "return_sampling_mask", False):
        return "GRAFT does not serve return_sampling_mask"
    if getattr(obj, "input_embeds", None) is not None:
        return "GRAFT does not serve input_embeds"
    return None


def unknown_token(input_ids: list[int] | None, vocab_size: int) -> str | None:
    """Which input id no token has: on the CPU the embedding would end the scheduler with it."""
    for token in input_ids or ():
        if not 0 <= token < vocab_size:
            return f"input id {token} is outside the vocabulary of {vocab_size} tokens"
    return None


def baseline_refusal(obj: Any) -> str | None:
    """Why the built-in DFLASH can't serve this request on the CPU: it would verify greedily."""
    parameters = getattr(obj, "sampling_params", None) or {}
    temperature = parameters.get("temperature")
    if parameters.get("top_k") == 1 or (temperature is not None and float(temperature) == 0.0):
        return None
    return "DFLASH on the CPU serves greedy requests only (temperature 0); GRAFT serves all"


def _before_validation(
    manager: Any, obj: Any, input_ids: list[int] | None, *args: Any, **kwargs: Any
) -> None:
    algorithm = (manager.server_args.speculative_algorithm or "").upper()
    reason = None
    if algorithm == "GRAFT" or on_our_cpu_platform():
        reason = unknown_token(input_ids, manager.model_config.vocab_size)
    if algorithm == "GRAFT":
        reason = reason or refusal(obj)
    elif algorithm == "DFLASH" and on_our_cpu_platform():
        reason = reason or baseline_refusal(obj)
    if reason is not None:
        raise ValueError(f"{reason}.")
