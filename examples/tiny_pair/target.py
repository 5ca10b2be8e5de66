"""The tiny target: a Qwen3 language model trained on packed rows of text."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from examples.dflash_training.optim import build_optimizers
from examples.dflash_training.train import LoopConfig, run_loop

CONTEXT = 4096


@dataclass(frozen=True)
class RowPlan:
    """Rows of one length; a training step takes ``batch`` of them."""

    length: int
    batch: int


def build_target(vocab_size: int, seed: int) -> Qwen3ForCausalLM:
    """A fresh float32 model of about 1.2 million parameters with tied embeddings."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
        dtype="float32",
    )
    return Qwen3ForCausalLM(config)


def pack_rows(documents: Sequence[list[int]], length: int, seed: int) -> Tensor:
    """int16 [rows, length + 1]: each row begins with a document's start and is filled up.

    A document's tail that doesn't fit is cut, unless it's long enough to start a row of its own.
    """
    pending = list(documents)
    random.Random(seed).shuffle(pending)
    rows, row = [], []
    while pending:
        document = pending.pop()
        room = length + 1 - len(row)
        row += document[:room]
        tail = document[room:]
        if len(row) == length + 1:
            rows.append(row)
            row = []
        if len(tail) > length // 2:
            pending.append(tail)
    return torch.tensor(rows, dtype=torch.int16)


def lm_loss(model: Qwen3ForCausalLM, rows: Tensor) -> Tensor:
    """Mean next-token cross-entropy of int [rows, length + 1], in nats."""
    rows = rows.long()
    logits = model(input_ids=rows[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: Qwen3ForCausalLM, rows: Tensor, batch: int = 16) -> float:
    """Mean loss over all ``rows``."""
    losses = [lm_loss(model, chunk) * len(chunk) for chunk in rows.split(batch)]
    return float(sum(losses) / len(rows))


def train_target(
    model: Qwen3ForCausalLM,
    documents: Sequence[list[int]],
    plan: RowPlan,
    cfg: LoopConfig,
    checkpoint: Path,
) -> list[dict[str, float]]:
    """Train in place over shuffled epochs of packed rows."""
    optimizers = build_optimizers(model, cfg.lr, weight_decay=0.05)
    epochs: dict[int, Tensor] = {}
    per_epoch = math.floor(len(pack_rows(documents, plan.length, cfg.seed)) * 0.98) // plan.batch

    def step_fn(step: int, _: torch.Generator) -> tuple[Tensor, dict[str, float]]:
        epoch, at = divmod(step, per_epoch)
        if epoch not in epochs:
            epochs.clear()
            epochs[epoch] = pack_rows(documents, plan.length, cfg.seed + epoch)
        rows = epochs[epoch][at * plan.batch : (at + 1) * plan.batch]
        return lm_loss(model, rows), {}

    model.train()
    log = run_loop(model, optimizers, step_fn, cfg, checkpoint, "target")
    model.eval()
    return log


def save_target(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> Qwen3ForCausalLM:
    """Save bfloat16 weights, tokenizer and generation config; return the reload in float32."""
    rounded = Qwen3ForCausalLM(model.config).to(torch.bfloat16)
    rounded.load_state_dict(model.state_dict())
    rounded.config.dtype = torch.bfloat16
    rounded.generation_config = GenerationConfig(
        eos_token_id=[2, 0], pad_token_id=0, do_sample=False
    )
    rounded.save_pretrained(folder)
    tokenizer.save_pretrained(folder, save_jinja_files=False)
    return load_target(folder)


def load_target(folder: Path) -> Qwen3ForCausalLM:
    """The saved target in float32, for reporting."""
    return Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
