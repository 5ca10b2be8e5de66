"""From the drafter's hidden states to candidates: the target's head, top-K, log-softmax."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from graft_sglang.contracts import DraftCandidates
from graft_sglang.engine.cpu_linear import packed_linear


class ShardLogits(NamedTuple):
    """The drafter's logits over this rank's part of the vocabulary."""

    logits: torch.Tensor
    """float32 [n, V_local]"""
    token_ids: torch.Tensor
    """int64 [V_local], of the full vocabulary."""


def head_logits(hidden: torch.Tensor, lm_head: Any) -> ShardLogits:
    """The last product of the drafter's forward: its states through the target's head.

    Args:
        hidden: [bs, D, E], the drafter's final states at depths 1..D, any floating dtype.
        lm_head: the target's head; ``shard_indices``, where present, says which rows of its
            weight are real and which token ids they stand for.

    Returns:
        Of n = bs * D rows.
    """
    weight = lm_head.weight
    rows = hidden.reshape(-1, hidden.shape[-1]).to(weight.dtype)
    shard = getattr(lm_head, "shard_indices", None)
    if shard is None:
        logits = packed_linear(rows, weight)
        return ShardLogits(logits.float(), torch.arange(weight.shape[0], device=rows.device))
    base = int(shard.num_org_elements)
    first = int(shard.org_vocab_start_index)
    logits = packed_linear(rows, weight if base == len(weight) else weight[:base])
    ids = torch.arange(first, first + base, device=rows.device)
    if shard.num_added_elements:
        start, count = int(shard.num_org_elements_padded), int(shard.num_added_elements)
        first = int(shard.added_vocab_start_index)
        logits = torch.cat([logits, rows @ weight[start : start + count].T], dim=1)
        ids = torch.cat([ids, torch.arange(first, first + count, device=rows.device)])
    return ShardLogits(logits.float(), ids)


def candidates_from_logits(
    hidden: torch.Tensor, shard: ShardLogits, root: torch.Tensor, k: int, tp_group: Any = None
) -> DraftCandidates:
    """The drafter's marginals, over the full vocabulary however the head is sharded.

    Args:
        hidden: [bs, D, E], as given to ``head_logits``.
        shard: what that returned.
        root: int64 [bs].
        k: candidates a depth.
        tp_group: SGLang's tensor-parallel group; ``None`` or of size 1 for an unsharded head.
    """
    batch_size, depth, _ = hidden.shape
    parts = [_local_top(*shard, k)]
    if tp_group is not None and tp_group.world_size > 1:
        gathered = [tp_group.all_gather(part.contiguous(), dim=0) for part in parts[0]]
        chunks = [tensor.chunk(tp_group.world_size, dim=0) for tensor in gathered]
        parts = list(zip(*chunks, strict=True))
    token_ids, log_probs = merge_shards(parts, k)
    states = hidden.float()
    return DraftCandidates(
        root=root.to(torch.int64),
        token_ids=token_ids.view(batch_size, depth, -1),
        log_probs=log_probs.view(batch_size, depth, -1),
        hidden_cosines=torch.cosine_similarity(states[:, :-1], states[:, 1:], dim=-1),
    )


def merge_shards(
    parts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Full-vocabulary top-K from each shard's own.

    Args:
        parts: per shard its best logits float32 [n, K'], their token ids int64 [n, K'] (of the
            full vocabulary) and the log-sum-exp of all its logits float32 [n, 1].

    Returns:
        Token ids int64 [n, K] and their log-probabilities float32 [n, K].
    """
    logits = torch.cat([part[0] for part in parts], dim=1)
    ids = torch.cat([part[1] for part in parts], dim=1)
    normaliser = torch.logsumexp(torch.cat([part[2] for part in parts], dim=1), 1, keepdim=True)
    if len(parts) > 1:
        logits, order = logits.topk(min(k, logits.shape[1]), dim=1)
        ids = ids.gather(1, order)
    return ids, logits - normaliser


def _local_top(
    logits: torch.Tensor, ids: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    best, order = logits.topk(min(k, logits.shape[1]), dim=1)
    return best, ids[order], torch.logsumexp(logits, dim=1, keepdim=True)
