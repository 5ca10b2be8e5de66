"""Train the tiny target and its DFlash drafter: ``python -m examples.tiny_pair.train --help``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from transformers import AutoTokenizer

from examples.dflash_training.train import LoopConfig

from .documents import Texts, encode_documents, read_texts
from .draft import make_drafter, own_answers
from .provenance import write_provenance
from .target import RowPlan, build_target, load_target, save_target, train_target
from .tokenizer import train_tokenizer

HERE = Path(__file__).parent
SEED = 20
VOCAB = 2_048
ROWS = RowPlan(length=512, batch=8)
TARGET_LOOP = LoopConfig(steps=2_500, lr=4e-3, warmup=40, seed=SEED)
DRAFTER_LOOP = LoopConfig(steps=1_500, lr=3e-3, warmup=20, seed=SEED)


def make_target(texts: Texts, runs: Path, out: Path) -> list[dict[str, float]]:
    """Tokenizer and target."""
    tokenizer = train_tokenizer(texts.all_training_text(), VOCAB, context=4_096)
    documents = encode_documents(tokenizer, texts.train, texts.raw_train)
    model = build_target(len(tokenizer), SEED)
    log = train_target(model, documents, ROWS, TARGET_LOOP, runs / "target.pt")
    save_target(model, tokenizer, out)
    return log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of chat *.jsonl files")
    parser.add_argument("--runs", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--out", type=Path, default=HERE, help="gets target/ and drafter/")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep-target", action="store_true", help="train the drafter alone")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.runs.mkdir(parents=True, exist_ok=True)
    texts = read_texts(args.corpus, SEED)
    if not args.keep_target:
        log = make_target(texts, args.runs, args.out / "target")
        (args.runs / "target.json").write_text(json.dumps(log))
    target = load_target(args.out / "target")
    tokenizer = AutoTokenizer.from_pretrained(args.out / "target")
    answers = own_answers(target, tokenizer, texts, SEED)
    log = make_drafter(
        target, tokenizer, answers, DRAFTER_LOOP, args.runs / "drafter.pt", args.out / "drafter"
    )
    (args.runs / "drafter.json").write_text(json.dumps(log))
    write_provenance(args.out, texts, args.runs, TARGET_LOOP, DRAFTER_LOOP)


if __name__ == "__main__":
    main()
