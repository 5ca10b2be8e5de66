"""What a drafter's ``config.json`` says, in the public DFlash layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

ARCHITECTURE = "DFlashDraftModel"

_DFLASH_FIELDS = ("target_layer_ids", "mask_token_id", "mask_token")
_KNOWN_NESTED = {*_DFLASH_FIELDS, "block_size", "num_target_layers"}
_UNKNOWN_IF_SET = (
    "attention_bias", "mlp_bias", "use_sliding_window", "quantization_config", "has_embed_tokens",
    "has_lm_head",
)  # fmt: skip


class UnknownDrafter(ValueError):
    """A drafter, or its target, that the plain implementation doesn't know; says why."""


def default_target_layer_ids(num_target_layers: int, num_features: int) -> list[int]:
    """Target layers whose outputs feed the drafter: evenly spaced from layer 1 to layer T - 3."""
    if num_features == 1:
        return [num_target_layers // 2]
    start, end = 1, num_target_layers - 3
    step = (end - start) / (num_features - 1)
    return [round(start + i * step) for i in range(num_features)]


@dataclass(frozen=True)
class DrafterConfig:
    """Sizes of a drafter; ``hidden_size`` and ``vocab_size`` are the target's."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_eps: float
    max_position_embeddings: int
    block_size: int
    num_target_layers: int
    target_layer_ids: tuple[int, ...]
    mask_token_id: int
    mask_token: str | None = None

    def to_hf(self) -> dict[str, Any]:
        """The ``config.json`` document of the public layout."""
        own = asdict(self)
        dflash = {name: own.pop(name) for name in _DFLASH_FIELDS}
        dflash["target_layer_ids"] = list(self.target_layer_ids)
        rope = {"rope_type": "default", "rope_theta": self.rope_theta}
        return {
            "architectures": [ARCHITECTURE],
            "model_type": "qwen3",
            **own,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "hidden_act": "silu",
            "initializer_range": 0.02,
            "layer_types": ["full_attention"] * self.num_hidden_layers,
            "rope_parameters": rope,
            "tie_word_embeddings": False,
            "use_cache": True,
            "use_sliding_window": False,
            "dtype": "bfloat16",
            "dflash_config": dflash,
        }

    @classmethod
    def from_hf(cls, document: Mapping[str, Any]) -> DrafterConfig:
        """Read the fields of a ``config.json`` document.

        Raises:
            UnknownDrafter: it asks for something that this implementation lacks, or lacks a field.
        """
        _check_known(document)
        nested = document.get("dflash_config") or {}
        rope = document.get("rope_parameters") or {}
        merged = {"rope_theta": rope.get("rope_theta"), **document, **nested}
        fields = {k: merged[k] for k in cls.__dataclass_fields__ if merged.get(k) is not None}
        needed = set(cls.__dataclass_fields__) - {"mask_token", "head_dim", "target_layer_ids"}
        missing = sorted(needed - set(fields))
        if missing:
            raise UnknownDrafter(f"its config.json has no {', '.join(missing)}")
        fields.setdefault("head_dim", fields["hidden_size"] // fields["num_attention_heads"])
        layers = fields.get("target_layer_ids") or default_target_layer_ids(
            fields["num_target_layers"], fields["num_hidden_layers"]
        )
        return cls(**{**fields, "target_layer_ids": tuple(layers)})


def _check_known(document: Mapping[str, Any]) -> None:
    """Raise ``UnknownDrafter`` unless every setting is one that the plain drafter has."""
    nested = document.get("dflash_config") or {}
    rope = {**(document.get("rope_scaling") or {}), **(document.get("rope_parameters") or {})}
    reasons = {
        f"its architecture is {document.get('architectures')}, not {ARCHITECTURE}": (
            document.get("architectures") != [ARCHITECTURE]
        ),
        f"its activation is {document.get('hidden_act')}, not silu": (
            document.get("hidden_act", "silu") != "silu"
        ),
        f"its rotary embedding is of the type {rope.get('rope_type', rope.get('type'))}": (
            rope.get("rope_type", rope.get("type", "default")) != "default"
        ),
        "not all of its layers have full attention": (
            set(document.get("layer_types") or ["full_attention"]) != {"full_attention"}
        ),
    }
    for name in _UNKNOWN_IF_SET:
        reasons[f"it sets {name}"] = bool(document.get(name))
    for name in sorted(set(nested) - _KNOWN_NESTED):
        reasons[f"its dflash_config sets {name}"] = bool(nested[name])
    found = [reason for reason, is_so in reasons.items() if is_so]
    if found:
        raise UnknownDrafter("; ".join(found))
