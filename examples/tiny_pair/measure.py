"""Measure the saved tiny pair: ``python -m examples.tiny_pair.measure --help``.

Everything is computed from the saved bfloat16 weights, loaded in float32.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from statistics import mean

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3ForCausalLM

from examples.dflash_training.evaluate import check_identity
from examples.dflash_training.replay import replay
from examples.dflash_training.sequences import TokenSequence, generate, repeated_share
from examples.dflash_training.teacher import TeacherMemory
from graft_sglang.reference.drafter import load_drafter

from .documents import Texts, encode_documents, read_texts
from .target import held_out_loss, pack_rows
from .tokenizer import chat_ids

HERE = Path(__file__).parent
PROMPTS, IDENTITY_PROMPTS, NEW_TOKENS = 96, 12, 96
BUDGETS = (0, 16, 64, 128)


def held_out_prompts(
    tokenizer: PreTrainedTokenizerFast, texts: Texts, count: int, seed: int
) -> list[list[int]]:
    """Chat prompts the pair never saw, in seeded order."""
    examples = list(texts.held_out)
    random.Random(seed).shuffle(examples)
    prompts = [chat_ids(tokenizer, e.prompt) for e in examples]
    return [p for p in prompts if len(p) <= 400][:count]


def measure(
    target: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    drafter_folder: Path,
    texts: Texts,
    seed: int,
) -> dict[str, object]:
    """Held-out loss, repetition, MAT by replay, and identity of the real loop."""
    rows = pack_rows(encode_documents(tokenizer, texts.held_out, texts.raw_held_out), 512, seed)
    stops = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    prompts = held_out_prompts(tokenizer, texts, PROMPTS, seed)
    drafter = load_drafter(drafter_folder)
    extra = drafter.cfg.block_size
    answers = generate(target, prompts, NEW_TOKENS + extra, stops, 48)
    sequences = [TokenSequence(p + a, len(p)) for p, a in zip(prompts, answers, strict=True)]
    teacher = TeacherMemory(target, sequences, drafter.cfg.target_layer_ids, top=1)
    embedding = target.get_input_embeddings().weight.detach()
    return {
        "held_out_loss_nats": round(held_out_loss(target, rows), 4),
        "held_out_rows_of_512": len(rows),
        "repeated_4gram_share_greedy": round(mean(repeated_share(a) for a in answers), 4),
        "greedy_answers": len(answers),
        "greedy_answer_tokens_mean": round(mean(map(len, answers)), 1),
        "replay": replay(drafter, embedding, embedding, teacher, range(len(sequences))),
        "real_loop": check_identity(
            target, drafter, prompts[:IDENTITY_PROMPTS], NEW_TOKENS, stops, BUDGETS
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of chat *.jsonl files")
    parser.add_argument("--pair", type=Path, default=HERE, help="holds target/ and drafter/")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--seed", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    target = Qwen3ForCausalLM.from_pretrained(args.pair / "target", dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(args.pair / "target")
    texts = read_texts(args.corpus, args.seed)
    report = measure(target, tokenizer, args.pair / "drafter", texts, args.seed)
    args.out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
