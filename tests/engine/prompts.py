"""Prompts of the end-to-end tests, written for them, as token ids of the tiny pair."""

from __future__ import annotations

from functools import cache
from typing import Any

from server import TARGET
from transformers import AutoTokenizer

QUESTIONS = (
    "Tom has 12 apples and buys 7 more. He gives 5 to his sister. How many apples does he have?",
    "A train travels 60 miles an hour for 3 hours. How far does it go?",
    "Write a function to add two numbers.",
    "Write a function that returns the largest element of a list.",
    "What is 15% of 240?",
    "Describe a quiet morning by the sea.",
    "Write a Python function named `parse_header` that splits a line at its first colon.",
    "A shop sells pens at $2 each. How much do 9 pens cost with a 10% discount?",
    "Give three tips for learning a language.",
    "Write a function to check if a string is a palindrome.",
    "Find the sum of the first 20 positive integers.",
    "Implement `close` in Python. Close the file if it is still open.",
    "Sara reads 14 pages a day. How many pages does she read in 3 weeks?",
    "Sort a dictionary by value.",
    "Translate the word 'house' into Spanish.",
    "If x + 3 = 10, what is 2x?",
)


@cache
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(TARGET)


def chat(text: str) -> list[int]:
    rendered = tokenizer().apply_chat_template(
        [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
    )
    return tokenizer()(rendered, add_special_tokens=False)["input_ids"]


@cache
def prompts() -> list[list[int]]:
    return [chat(question) for question in QUESTIONS]
