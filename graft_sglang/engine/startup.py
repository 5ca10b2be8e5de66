"""What is checked before a model is loaded: features, the drafter's fit, the verify width."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graft_sglang.config import ConfigError, GraftConfig
from graft_sglang.contracts import MAX_BUDGET, MAX_DEPTH, ComponentContext
from graft_sglang.registry import budget_policies


@dataclass(frozen=True, slots=True)
class DraftShape:
    """What of a drafter and its target fixes the sizes of a round."""

    block_size: int
    vocab_size: int
    target: str
    """Path or hub name of the target."""


NAME = "GRAFT"
"""Of the algorithm."""

DRAFTER_WORDS = "drafter (--speculative-draft-model-path)"

_WORKER_APP = "graft_sglang.engine.http_app:app"

# What can't be verified losslessly as a tree, or has never been run: refused, not degraded.
_REFUSED_FEATURES = (
    ("pp_size", lambda v: v > 1, "pipeline parallelism (--pp-size)"),
    ("speculative_draft_window_size", bool, "a windowed drafter (--speculative-draft-window-size)"),
    ("speculative_adaptive", bool, "--speculative-adaptive (use a GRAFT budget policy)"),
    ("enable_lora", bool, "LoRA (--enable-lora)"),
    ("enable_mixed_chunk", bool, "mixed prefill and decode batches (--enable-mixed-chunk)"),
    ("enable_watermark", bool, "watermarking (--enable-watermark)"),
    ("enable_hisparse", bool, "--enable-hisparse"),
    ("enable_deterministic_inference", bool, "--enable-deterministic-inference"),
)


def check_features(server_args: Any) -> None:
    """Raise ``ConfigError`` for a server feature that GRAFT can't serve losslessly."""
    for name, is_on, words in _REFUSED_FEATURES:
        value = getattr(server_args, name, None)
        if value is not None and is_on(value):
            raise ConfigError(f"GRAFT does not serve {words}; leave it off.")
    if server_args.disaggregation_mode not in (None, "null"):
        raise ConfigError("GRAFT does not serve disaggregated prefill and decode; leave it off.")
    if (getattr(server_args, "attn_dp_size", None) or 1) > 1:
        raise ConfigError("GRAFT does not serve data-parallel attention; leave it off.")


def load_plugins_in_tokenizer_workers(server_args: Any) -> None:
    """With ``--tokenizer-worker-num`` above 1, have the web server's workers load the plugins.

    Raises:
        ConfigError: the variable that says what they import is taken.
    """
    if (server_args.tokenizer_worker_num or 1) == 1:
        return
    from sglang.srt.environ import envs

    variable = envs.SGLANG_HTTP_SERVER_APP_PATH
    if variable.is_set() and variable.get() != _WORKER_APP:
        raise ConfigError(
            f"GRAFT needs SGLANG_HTTP_SERVER_APP_PATH to load its plugin in several tokenizer "
            f"workers, but it is set to '{variable.get()}'; unset it, or leave "
            f"--tokenizer-worker-num at 1."
        )
    variable.set(_WORKER_APP)


def read_draft_shape(server_args: Any) -> DraftShape:
    """Read both models' configurations and check that the drafter was made for the target.

    Raises:
        ConfigError: no drafter, not a plain DFlash drafter, or one for another target.
    """
    path = server_args.speculative_draft_model_path
    if not path:
        raise ConfigError(
            "GRAFT needs a DFlash drafter: give its path with --speculative-draft-model-path."
        )
    draft = load_config(path, server_args, DRAFTER_WORDS)
    target = load_config(server_args.model_path, server_args, "target (--model-path)")
    draft_text = getattr(draft, "text_config", None) or draft
    target_text = getattr(target, "text_config", None) or target

    from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config

    architectures = list(getattr(draft, "architectures", None) or [])
    if not any("DFlash" in name for name in architectures):
        raise ConfigError(
            f"The drafter '{path}' is a {', '.join(architectures) or 'model without architecture'},"
            f" not a DFlash drafter (DFlashDraftModel)."
        )
    parsed = parse_dflash_draft_config(draft_hf_config=draft)
    if parsed.is_domino or parsed.selector_rank or parsed.projector_type:
        raise ConfigError(
            f"The drafter '{path}' has an extra head (Domino, selector or LiLiCorr); GRAFT needs a "
            f"plain DFlash drafter, whose marginals it turns into a tree."
        )
    if parsed.block_size is None:
        raise ConfigError(f"The drafter '{path}' has no block_size in its config.json.")
    if not 2 <= parsed.block_size <= MAX_DEPTH + 1:
        raise ConfigError(
            f"The drafter's block_size must be from 2 to {MAX_DEPTH + 1}, not {parsed.block_size}."
        )
    asked = server_args.speculative_dflash_block_size
    if asked is not None and asked != parsed.block_size:
        raise ConfigError(
            f"--speculative-dflash-block-size {asked} differs from the drafter's block size "
            f"{parsed.block_size}; leave it out."
        )
    _check_fit(path, parsed, draft_text, target_text)
    return DraftShape(parsed.block_size, int(target_text.vocab_size), server_args.model_path)


def _check_fit(path: str, parsed: Any, draft: Any, target: Any) -> None:
    for name, words in (("hidden_size", "hidden size"), ("vocab_size", "vocabulary")):
        ours, theirs = getattr(draft, name, None), getattr(target, name, None)
        if ours is not None and ours != theirs:
            raise ConfigError(
                f"The drafter '{path}' was made for another target: its {words} is {ours}, "
                f"the target's {theirs}."
            )
    layers = int(target.num_hidden_layers)
    if parsed.num_target_layers is not None and parsed.num_target_layers != layers:
        raise ConfigError(
            f"The drafter '{path}' was made for a target of {parsed.num_target_layers} layers; "
            f"this target has {layers}."
        )
    try:
        parsed.resolve_target_layer_ids(target_num_layers=layers)
    except ValueError as error:
        raise ConfigError(f"The drafter '{path}' was made for another target: {error}") from error
    if parsed.mask_token_id is not None and parsed.mask_token_id >= int(target.vocab_size):
        raise ConfigError(
            f"The drafter '{path}' was made for another target: its mask token "
            f"{parsed.mask_token_id} is outside the vocabulary of {target.vocab_size}."
        )


def check_local_path(path: str, words: str) -> None:
    """Raise ``ConfigError`` for a path (not a hub's name) where nothing is."""
    if path.startswith(("/", "./", "../", "~")) and not Path(path).expanduser().exists():
        raise ConfigError(f"The {words} '{path}' doesn't exist.")


def load_config(path: str, server_args: Any, words: str) -> Any:
    """A model's configuration, as SGLang reads it.

    Raises:
        ConfigError: it can't be read.
    """
    from sglang.srt.utils.hf_transformers_utils import get_config

    check_local_path(path, words)
    try:
        return get_config(
            path,
            trust_remote_code=server_args.trust_remote_code,
            model_override_args=json.loads(server_args.json_model_override_args),
        )
    except Exception as error:
        raise ConfigError(f"The {words} '{path}' can't be read: {error}") from error


def verify_width(config: GraftConfig, shape: DraftShape, num_draft_tokens: int | None) -> int:
    """The widest verify window, root included: it also holds the drafter's block.

    Raises:
        ConfigError: ``--speculative-num-draft-tokens`` and ``--graft-max-budget`` disagree, or
            a budget is above the hard maximum.
    """
    largest = config.max_budget
    if num_draft_tokens is not None:
        if largest is not None and num_draft_tokens != largest + 1:
            raise ConfigError(
                f"--speculative-num-draft-tokens {num_draft_tokens} means a largest budget of "
                f"{num_draft_tokens - 1}, but --graft-max-budget is {largest}; give only one."
            )
        largest = num_draft_tokens - 1
        if not 1 <= largest <= MAX_BUDGET:
            raise ConfigError(
                f"--speculative-num-draft-tokens must be from 2 to {MAX_BUDGET + 1}, "
                f"not {num_draft_tokens}."
            )
    if largest is None:
        policy = budget_policies.get(config.budget_policy).from_context(
            launch_context(config, shape, MAX_BUDGET)
        )
        largest = policy.max_budget
        if not 1 <= largest <= MAX_BUDGET:
            raise ConfigError(
                f"The budget policy '{config.budget_policy}' asks for up to {largest} nodes; "
                f"GRAFT builds trees of 1 to {MAX_BUDGET}."
            )
    return max(largest + 1, shape.block_size)


def launch_context(config: GraftConfig, shape: DraftShape, max_budget: int) -> ComponentContext:
    """What a part may know before a model is loaded; the target's embedding is read from disk."""
    import torch

    from graft_sglang.target_files import read_input_embedding

    return ComponentContext(
        depth=shape.block_size - 1,
        num_candidates=min(config.candidates, shape.vocab_size),
        max_budget=max_budget,
        vocab_size=shape.vocab_size,
        device=torch.device("cpu"),
        options=config.as_options(),
        target_embedding=lambda: read_input_embedding(shape.target),
    )
