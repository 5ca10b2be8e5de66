"""The check of losslessness: the plain loop and the speculative one must say the same."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from graft_sglang.reference.decoding import TreeDecoder
from graft_sglang.reference.drafter import DFlashDrafter


@torch.no_grad()
def decode_plain(
    target: PreTrainedModel, prompt: Sequence[int], new_tokens: int, stops: Sequence[int]
) -> list[int]:
    """Greedy decoding, one token a forward."""
    cache = DynamicCache(config=target.config)
    ids, tokens = torch.tensor([list(prompt)]), []
    while len(tokens) < new_tokens:
        out = target(input_ids=ids, past_key_values=cache, use_cache=True)
        tokens.append(int(out.logits[0, -1].argmax()))
        if tokens[-1] in stops:
            break
        ids = torch.tensor([[tokens[-1]]])
    return tokens


def check_identity(
    target: PreTrainedModel,
    drafter: DFlashDrafter,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    stops: Sequence[int],
    budgets: Sequence[int],
    candidates: int = 32,
) -> dict[str, dict[str, float]]:
    """For the chain (budget 0) and each tree: prompts decoded alike, and MAT of the real loop."""
    decoder = TreeDecoder(target, drafter, candidates)
    plain = [decode_plain(target, p, new_tokens, stops) for p in prompts]
    report = {}
    for budget in budgets:
        runs = [decoder.decode(p, new_tokens, stops, budget) for p in prompts]
        rounds = [c for run in runs for c in run.committed]
        report[f"tree{budget}" if budget else "chain"] = {
            "identical": sum(r.tokens == p for r, p in zip(runs, plain, strict=True)),
            "prompts": len(prompts),
            "mat": sum(rounds) / max(1, len(rounds)),
        }
    return report
