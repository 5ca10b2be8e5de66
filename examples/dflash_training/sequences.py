"""Token sequences with a prompt/response boundary, and batched generation by a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel


@dataclass(frozen=True)
class TokenSequence:
    """Token ids of prompt + response; ``boundary`` is the index of the first response token."""

    tokens: list[int]
    boundary: int
    task: str = ""

    @property
    def response(self) -> list[int]:
        return self.tokens[self.boundary :]


def repeated_share(tokens: Sequence[int], size: int = 4) -> float:
    """Share of ``size``-grams of ``tokens`` that occurred earlier in ``tokens``."""
    grams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def pad_right(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    """int64 [rows, longest]."""
    width = max(len(r) for r in rows)
    return torch.tensor([list(r) + [fill] * (width - len(r)) for r in rows])


@torch.no_grad()
def generate(
    target: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    stop_ids: Sequence[int],
    batch: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[list[int]]:
    """Responses (token ids, stop token included) of ``target`` to ``prompts``, in their order.

    Batches prompts of similar length, left-padded; temperature 0 is greedy.
    """
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    responses: list[list[int]] = [[] for _ in prompts]
    torch.manual_seed(seed)
    for start in tqdm(range(0, len(order), batch), desc="generate", mininterval=5):
        chosen = order[start : start + batch]
        width = max(len(prompts[i]) for i in chosen)
        ids = torch.full((len(chosen), width), stop_ids[0])
        mask = torch.zeros_like(ids)
        for row, i in enumerate(chosen):
            ids[row, width - len(prompts[i]) :] = torch.tensor(prompts[i])
            mask[row, width - len(prompts[i]) :] = 1
        sampling = {"temperature": temperature, "top_k": 0} if temperature else {}
        out = target.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=new_tokens,
            do_sample=temperature > 0,
            eos_token_id=list(stop_ids),
            pad_token_id=stop_ids[0],
            **sampling,
        )
        for row, i in enumerate(chosen):
            responses[i] = cut_after_stop(out[row, width:].tolist(), stop_ids)
    return responses


def cut_after_stop(tokens: list[int], stop_ids: Sequence[int]) -> list[int]:
    """``tokens`` up to and including the first stop token."""
    for i, token in enumerate(tokens):
        if token in stop_ids:
            return tokens[: i + 1]
    return tokens
