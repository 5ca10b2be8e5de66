"""Prompts of the self-test: written for it, and such that an answer goes on for a while."""

from __future__ import annotations

TEXTS = (
    "Explain how bread rises, step by step.",
    "Write a Python function that counts how often each word occurs in a text.",
    "A baker sells 14 rolls an hour for 6 hours, at 3 coins each. How much does she earn?",
    "Describe a harbour at night in a few sentences.",
    "List five things to check before a long bicycle tour, and say why.",
    "Write a short letter in which a gardener thanks a neighbour for seeds.",
    "What is the difference between a list and a tuple in Python? Give an example.",
    "Find all whole numbers below 40 that 6 and 4 both divide.",
)


def token_ids(target: str, trust_remote_code: bool = False) -> list[list[int]]:
    """The prompts as the target's chat template puts them, or as they are where it has none."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(target, trust_remote_code=trust_remote_code)
    if not tokenizer.chat_template:
        return [tokenizer(text)["input_ids"] for text in TEXTS]
    rendered = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
        for text in TEXTS
    ]
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in rendered]
