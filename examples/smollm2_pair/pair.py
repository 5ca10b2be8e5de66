"""Facts shared by the steps of the SmolLM2 pair: sizes, the drafter's shape, the answers."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from examples.dflash_training.data import read_jsonl
from examples.dflash_training.sequences import TokenSequence
from graft_sglang.reference.config import DrafterConfig, default_target_layer_ids

MASK_TOKEN, MASK_TOKEN_ID = "<empty_output>", 16
BLOCK, LAYERS, FEATURES = 8, 2, 3
TOP = 8
SEED = 30


def load_target(folder: Path) -> LlamaForCausalLM:
    """The prepared target in float32."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def drafter_config(target: LlamaForCausalLM) -> DrafterConfig:
    """A two-layer drafter with the target's own widths."""
    config = target.config
    return DrafterConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=LAYERS,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.hidden_size // config.num_attention_heads,
        rope_theta=config.rope_parameters["rope_theta"],
        rms_norm_eps=config.rms_norm_eps,
        max_position_embeddings=config.max_position_embeddings,
        block_size=BLOCK,
        num_target_layers=config.num_hidden_layers,
        target_layer_ids=tuple(default_target_layer_ids(config.num_hidden_layers, FEATURES)),
        mask_token_id=MASK_TOKEN_ID,
        mask_token=MASK_TOKEN,
    )


def read_answers(path: Path) -> list[TokenSequence]:
    """The target's own greedy answers in a seeded random order."""
    rows = read_jsonl(path)
    random.Random(SEED).shuffle(rows)
    return [
        TokenSequence(r["prompt_ids"] + r["response_ids"], len(r["prompt_ids"]), r["task"])
        for r in rows
        if len(r["response_ids"]) > BLOCK
    ]
