"""Transformers-only decoding: draft, verify a chain or a tree, commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from graft_sglang.reference.config import UnknownDrafter
from graft_sglang.reference.drafter import DFlashDrafter
from graft_sglang.reference.tree import best_first_tree


@dataclass(frozen=True)
class Decoded:
    """Response tokens and how many were committed in each verification round."""

    tokens: list[int]
    committed: list[int]


class TreeDecoder:
    """Speculative greedy decoding of one sequence; ``budget`` 0 nodes means the chain."""

    def __init__(self, target: PreTrainedModel, drafter: DFlashDrafter, candidates: int) -> None:
        """
        Args:
            candidates: K, tokens a depth that a tree may hold.

        Raises:
            UnknownDrafter: a target whose hidden states, embeddings or cache are not plain.
        """
        _check_target(target, drafter)
        self._target, self._drafter, self._candidates = target, drafter, candidates
        self._embedding = target.get_input_embeddings().weight
        self._head = target.get_output_embeddings().weight

    def _tensor(self, values: Any) -> Tensor:
        return torch.tensor(values, device=self._embedding.device)

    def _features(self, states: Sequence[Tensor], keep: Sequence[int]) -> Tensor:
        layers = self._drafter.cfg.target_layer_ids
        return torch.cat([states[i + 1][:, list(keep)] for i in layers], dim=-1)

    def _draft(self, features: Tensor, token: int) -> tuple[list[list[int]], list[list[float]]]:
        """Candidates of every depth, most likely first: ids and log-probabilities."""
        anchor = self._tensor([[features.shape[1]]])
        embeds = self._drafter.block_embeds(self._embedding, self._tensor([[token]]))
        hidden = self._drafter(features, embeds, anchor)[0, 0, 1:]
        logits = (hidden @ self._head.T).float()
        values, ids = logits.log_softmax(-1).topk(self._candidates)
        return ids.tolist(), values.tolist()

    def _mask(self, nodes: Sequence[tuple[int, int, int]], prefix: int) -> Tensor:
        """Additive [1, 1, n, prefix + n]: the prefix, each node's ancestors and itself."""
        dtype = self._embedding.dtype
        mask = torch.full((len(nodes), prefix + len(nodes)), torch.finfo(dtype).min, dtype=dtype)
        mask[:, :prefix] = 0
        for index, (parent, _, _) in enumerate(nodes):
            if parent >= 0:
                mask[index, prefix:] = mask[parent, prefix:]
            mask[index, prefix + index] = 0
        return mask[None, None].to(self._embedding.device)

    @torch.no_grad()
    def decode(
        self, prompt: Sequence[int], new_tokens: int, stops: Sequence[int], budget: int
    ) -> Decoded:
        """Decode ``new_tokens`` tokens or up to a stop token.

        The last round may have committed more tokens than are returned.
        """
        cache = DynamicCache(config=self._target.config)
        out = self._target(
            input_ids=self._tensor([list(prompt)]),
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
                input_ids=self._tensor([row]),
                position_ids=self._tensor([[prefix + d for _, d, _ in nodes]]),
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
            keep = self._tensor([*range(prefix), *(prefix + node for node in path)])
            for layer in cache.layers:
                layer.keys, layer.values = layer.keys[:, :, keep], layer.values[:, :, keep]
            features = torch.cat((features, self._features(out.hidden_states, path)), dim=1)
            fresh = [row[node] for node in path[1:]] + [chosen[path[-1]]]
            committed.append(len(fresh))
            tokens += fresh
        return Decoded(_cut(tokens, new_tokens, stops), committed)


def _cut(tokens: list[int], new_tokens: int, stops: Sequence[int]) -> list[int]:
    """The first ``new_tokens`` tokens, and nothing after a stop token."""
    for index, token in enumerate(tokens[:new_tokens]):
        if token in stops:
            return tokens[: index + 1]
    return tokens[:new_tokens]


def _check_target(target: PreTrainedModel, drafter: DFlashDrafter) -> None:
    config = target.config.get_text_config()
    if max(drafter.cfg.target_layer_ids) >= config.num_hidden_layers - 1:
        raise UnknownDrafter("it reads the target's last layer, which transformers gives normed")
    if type(target.get_input_embeddings()) is not torch.nn.Embedding:
        raise UnknownDrafter("its target scales or extends its embeddings")
    if set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
        raise UnknownDrafter("not all layers of its target have full attention")
