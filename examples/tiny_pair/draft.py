"""The tiny pair's drafter: the target's own answers, then a two-layer DFlash drafter on them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from examples.dflash_training.drafter import save_drafter
from examples.dflash_training.fit import FitPlan, fit_drafter
from examples.dflash_training.sequences import TokenSequence, generate
from examples.dflash_training.teacher import TeacherMemory
from examples.dflash_training.train import LoopConfig
from examples.dflash_training.warm_start import warm_start
from graft_sglang.reference.config import DrafterConfig
from graft_sglang.reference.drafter import DFlashDrafter

from .documents import Texts
from .tokenizer import chat_ids

GREEDY_PROMPTS, SAMPLED_PROMPTS = 3_600, 1_200
USED_ANSWERS = 4_800
NEW_TOKENS = 160
MAX_PROMPT = 220
FIT = FitPlan(batch=6, anchors=24, decay=4.0, soft_share=0.3)
LAYERS_READ = (1, 3, 4)
BLOCK = 12
TOP = 8


def own_answers(
    target: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, texts: Texts, seed: int
) -> list[TokenSequence]:
    """Greedy and sampled answers of the target to training prompts, in seeded order."""
    rng = random.Random(seed)
    prompts = [chat_ids(tokenizer, e.prompt) for e in texts.train]
    prompts = [p for p in prompts if len(p) <= MAX_PROMPT]
    rng.shuffle(prompts)
    greedy = prompts[:GREEDY_PROMPTS]
    sampled = prompts[GREEDY_PROMPTS : GREEDY_PROMPTS + SAMPLED_PROMPTS]
    stops = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    answers: list[TokenSequence] = []
    for chosen, temperature in ((greedy, 0.0), (sampled, 0.8)):
        responses = generate(target, chosen, NEW_TOKENS, stops, 96, temperature, seed)
        for prompt, response in zip(chosen, responses, strict=True):
            answers.append(TokenSequence(prompt + response, len(prompt)))
    answers = [a for a in answers if len(a.response) > 4]
    random.Random(0).shuffle(answers)
    return answers[:USED_ANSWERS]


def drafter_config(target: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> DrafterConfig:
    """Two layers of the target's own widths."""
    config = target.config
    return DrafterConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=2,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        rope_theta=config.rope_parameters["rope_theta"],
        rms_norm_eps=config.rms_norm_eps,
        max_position_embeddings=config.max_position_embeddings,
        block_size=BLOCK,
        num_target_layers=config.num_hidden_layers,
        target_layer_ids=LAYERS_READ,
        mask_token_id=tokenizer.mask_token_id,
        mask_token=tokenizer.mask_token,
    )


def make_drafter(
    target: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    answers: Sequence[TokenSequence],
    cfg: LoopConfig,
    checkpoint: Path,
    out: Path,
) -> list[dict[str, float]]:
    """Train a drafter from the target's last layers on and save it."""
    torch.manual_seed(cfg.seed)
    drafter = DFlashDrafter(drafter_config(target, tokenizer))
    warm_start(drafter, target, torch.tensor([answers[0].tokens]))
    teacher = TeacherMemory(target, answers, LAYERS_READ, TOP)
    embedding = target.get_input_embeddings().weight.detach()
    log = fit_drafter(drafter, embedding, embedding, teacher, FIT, cfg, checkpoint)
    save_drafter(drafter, out)
    return log
