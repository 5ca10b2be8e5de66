"""Transformers-only decoding: draft, verify a tree, commit. The check of losslessness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from .drafter import DFlashDrafter
from .tree import best_first_tree

BLOCKED = torch.finfo(torch.float32).min


@dataclass(frozen=True)
class Decoded:
    """Response tokens and how many were committed in each verification round."""

    tokens: list[int]
    committed: list[int]


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


class TreeDecoder:
    """Speculative greedy decoding of one sequence; ``budget`` 0 nodes means the chain."""

    def __init__(self, target: PreTrainedModel, drafter: DFlashDrafter, candidates: int) -> None:
        self._target, self._drafter, self._candidates = target, drafter, candidates
        self._embedding = target.get_input_embeddings().weight
        self._head = target.get_output_embeddings().weight

    def _features(self, states: Sequence[Tensor], keep: Sequence[int]) -> Tensor:
        layers = self._drafter.cfg.target_layer_ids
        return torch.cat([states[i + 1][:, list(keep)] for i in layers], dim=-1)

    def _draft(self, features: Tensor, token: int) -> tuple[list[list[int]], list[list[float]]]:
        """Candidates of every depth, most likely first: ids and log-probabilities."""
        anchor = torch.tensor([[features.shape[1]]])
        embeds = self._drafter.block_embeds(self._embedding, torch.tensor([[token]]))
        hidden = self._drafter(features, embeds, anchor)[0, 0, 1:]
        values, ids = (hidden @ self._head.T).log_softmax(-1).topk(self._candidates)
        return ids.tolist(), values.tolist()

    @staticmethod
    def _mask(nodes: Sequence[tuple[int, int, int]], prefix: int) -> Tensor:
        """Additive float32 [1, 1, n, prefix + n]: the prefix, each node's ancestors and itself."""
        mask = torch.full((len(nodes), prefix + len(nodes)), BLOCKED)
        mask[:, :prefix] = 0
        for index, (parent, _, _) in enumerate(nodes):
            if parent >= 0:
                mask[index, prefix:] = mask[parent, prefix:]
            mask[index, prefix + index] = 0
        return mask[None, None]

    @torch.no_grad()
    def decode(
        self, prompt: Sequence[int], new_tokens: int, stops: Sequence[int], budget: int
    ) -> Decoded:
        """Decode ``new_tokens`` tokens or up to a stop token."""
        cache = DynamicCache(config=self._target.config)
        out = self._target(
            input_ids=torch.tensor([list(prompt)]),
            past_key_values=cache,
            use_cache=True,
            output_hidden_states=True,
        )
        features = self._features(out.hidden_states, range(len(prompt)))
        tokens, committed = [int(out.logits[0, -1].argmax())], []
        while len(tokens) < new_tokens and tokens[-1] not in stops:
            ids, log_probs = self._draft(features, tokens[-1])
            if budget:
                nodes = best_first_tree(log_probs, budget)
            else:
                nodes = [(depth - 1, depth, 0) for depth in range(len(ids) + 1)]
            prefix = features.shape[1]
            row = [ids[d - 1][r] if d else tokens[-1] for _, d, r in nodes]
            out = self._target(
                input_ids=torch.tensor([row]),
                position_ids=torch.tensor([[prefix + d for _, d, _ in nodes]]),
                attention_mask=self._mask(nodes, prefix),
                past_key_values=cache,
                use_cache=True,
                output_hidden_states=True,
            )
            chosen = out.logits[0].argmax(-1).tolist()
            path = [0]
            for index, (parent, _, _) in enumerate(nodes):
                if index and parent == path[-1] and row[index] == chosen[parent]:
                    path.append(index)
            keep = torch.tensor([*range(prefix), *(prefix + node for node in path)])
            for layer in cache.layers:
                layer.keys, layer.values = layer.keys[:, :, keep], layer.values[:, :, keep]
            features = torch.cat((features, self._features(out.hidden_states, path)), dim=1)
            fresh = [row[node] for node in path[1:]] + [chosen[path[-1]]]
            committed.append(len(fresh))
            tokens += fresh
        return Decoded(cut(tokens, new_tokens, stops), committed)


def cut(tokens: list[int], new_tokens: int, stops: Sequence[int]) -> list[int]:
    """The first ``new_tokens`` tokens, and nothing after a stop token."""
    for index, token in enumerate(tokens[:new_tokens]):
        if token in stops:
            return tokens[: index + 1]
    return tokens[:new_tokens]


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
