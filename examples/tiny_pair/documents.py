"""From texts to token documents: chat examples through the template, source files as they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from examples.dflash_training.data import Example, is_held_out, read_corpus, split_examples

from .corpus import function_examples, raw_documents, stdlib_sources
from .tokenizer import END_OF_TEXT, TURN_END, chat_ids

HELD_OUT_SHARE = 0.02
RAW_CHARS = 3_000_000


@dataclass(frozen=True)
class Texts:
    """Training and held-out chat examples, and raw source files."""

    train: list[Example]
    held_out: list[Example]
    raw_train: list[str]
    raw_held_out: list[str]

    def all_training_text(self) -> list[str]:
        return [f"{e.prompt}\n{e.response}" for e in self.train] + self.raw_train


def read_texts(corpus: Path, seed: int) -> Texts:
    """Read the chat corpus folder and the running Python's standard library."""
    sources = stdlib_sources()
    examples = read_corpus(corpus) + function_examples(sources, seed)
    train, held_out = split_examples(examples, HELD_OUT_SHARE)
    raw = raw_documents(sources, RAW_CHARS, seed)
    return Texts(
        train=train,
        held_out=held_out,
        raw_train=[t for t in raw if not is_held_out(t, HELD_OUT_SHARE)],
        raw_held_out=[t for t in raw if is_held_out(t, HELD_OUT_SHARE)],
    )


def encode(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> list[list[int]]:
    """Token ids without any added special token."""
    return tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"] if texts else []


def encode_documents(
    tokenizer: PreTrainedTokenizerFast, examples: list[Example], raw: list[str]
) -> list[list[int]]:
    """One id list a document, each closed by the end-of-text token."""
    answers = encode(tokenizer, [f"{e.response}{TURN_END}\n{END_OF_TEXT}" for e in examples])
    chats = [
        chat_ids(tokenizer, e.prompt) + answer for e, answer in zip(examples, answers, strict=True)
    ]
    return chats + encode(tokenizer, [text + END_OF_TEXT for text in raw])
