"""The whole input embedding, of one rank or of several."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from graft_sglang.engine.embedding import full_embedding


def shard(rows: torch.Tensor, padded: int, vocabulary: int) -> SimpleNamespace:
    """An embedding of one rank: ``padded`` rows of its own, then rows for added tokens."""
    filler = torch.full((padded + 3 - len(rows), rows.shape[1]), float("nan"))
    return SimpleNamespace(
        weight=torch.cat((rows, filler)),
        org_vocab_size=vocabulary,
        shard_indices=SimpleNamespace(num_org_elements_padded=padded),
    )


def test_shards_are_put_together_without_their_padding() -> None:
    whole = torch.randn(11, 4)
    parts = [shard(whole[:8], 8, 11), shard(whole[8:], 8, 11)]
    gathered = torch.cat([part.weight[:8] for part in parts])
    group = SimpleNamespace(world_size=2, all_gather=lambda rows, dim: gathered)
    for part in parts:
        assert torch.equal(full_embedding(part, group), whole)


def test_one_rank_and_a_plain_embedding() -> None:
    whole = torch.randn(11, 4)
    assert torch.equal(full_embedding(shard(whole, 16, 11), None), whole)
    assert torch.equal(full_embedding(torch.nn.Embedding.from_pretrained(whole)), whole)
