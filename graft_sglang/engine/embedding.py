"""The target's whole input embedding, however its rows are sharded."""

from __future__ import annotations

from typing import Any

import torch


def full_embedding(embedding: Any, tp_group: Any = None) -> torch.Tensor:
    """The rows of every token, [V, E]; token ids added beyond the model's own are left out.

    Args:
        embedding: SGLang's ``VocabParallelEmbedding`` of the target. Every rank holds as many
            rows, of consecutive token ids; only the last ones are padded.
        tp_group: SGLang's tensor-parallel group; ``None`` or of size 1 for a whole embedding.
    """
    shard = getattr(embedding, "shard_indices", None)
    if shard is None:
        return embedding.weight
    rows = embedding.weight[: int(shard.num_org_elements_padded)]
    if tp_group is not None and tp_group.world_size > 1:
        rows = tp_group.all_gather(rows.contiguous(), dim=0)
    return rows[: int(embedding.org_vocab_size)]
