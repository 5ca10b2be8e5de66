"""Edges scored where the tree reaches are the edges of the whole table, and so is the tree."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from graft_sglang.contracts import DraftCandidates, EdgeScores
from graft_sglang.token_pairs import TokenPairScores
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.chain import ChainTreeBuilder
from graft_sglang.tree.jit import jit
from graft_sglang.tree.pair_rows import fill_row

VOCABULARY, WIDTH = 60, 24


@jit
def one_row(table, depth_vector, scale, normalized, parent, children, log_probs, row):
    fill_row(
        table,
        depth_vector,
        scale,
        normalized,
        parent,
        children,
        log_probs,
        np.empty(table.shape[2], np.float32),
        row,
    )


def random_scores(seed: int, normalized: bool, batch_size: int = 3) -> TokenPairScores:
    generator = torch.Generator().manual_seed(seed)
    depth, k = 1 + seed % 6, 1 + (seed * 7) % 9
    logits = 2 * torch.randn(batch_size, depth, VOCABULARY, generator=generator)
    log_probs, token_ids = logits.log_softmax(-1).topk(k)
    return TokenPairScores(
        DraftCandidates(
            torch.randint(VOCABULARY, (batch_size,), generator=generator),
            token_ids,
            log_probs,
            torch.zeros(batch_size, depth - 1),
        ),
        torch.randn(VOCABULARY, 2 * WIDTH, generator=generator),
        torch.randn(depth + seed % 2, WIDTH, generator=generator),
        0.3,
        normalized,
    )


def all_rows(scores: TokenPairScores) -> torch.Tensor:
    """Every row as the kernel computes it."""
    given = scores.candidates
    batch_size, depth, k = given.token_ids.shape
    table = scores.rows.numpy().reshape(VOCABULARY, 2, WIDTH)
    values = np.empty((batch_size, depth, k, k), np.float32)
    for b in range(batch_size):
        for d in range(depth):
            for p in range(k):
                one_row(
                    table,
                    scores.depth_vectors[d].numpy(),
                    scores.scale,
                    scores.normalized,
                    int(given.token_ids[b, d - 1, p] if d else given.root[b]),
                    given.token_ids[b, d].numpy(),
                    given.log_probs[b, d].numpy(),
                    values[b, d, p],
                )
    return torch.from_numpy(values)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_the_tree_is_that_of_the_whole_table(seed: int, normalized: bool) -> None:
    scores = random_scores(seed, normalized)
    rows = all_rows(scores)
    torch.testing.assert_close(rows, scores.values, rtol=0, atol=1e-5)
    budgets = torch.tensor([seed % 5, 17, 90])
    caps = torch.tensor([6, 2, 6])
    build = BestFirstTreeBuilder().build
    found = build(scores.candidates, scores, budgets, caps)
    expected = build(scores.candidates, EdgeScores(rows), budgets, caps)
    for field in dataclasses.fields(found):
        assert torch.equal(getattr(found, field.name), getattr(expected, field.name)), field.name


def test_builders_that_know_nothing_of_pairs_read_the_values() -> None:
    scores = random_scores(11, False)
    budgets = torch.tensor([1, 3, 8])
    found = ChainTreeBuilder().build(scores.candidates, scores, budgets)
    expected = ChainTreeBuilder().build(scores.candidates, EdgeScores(scores.values), budgets)
    assert torch.equal(found.token_ids, expected.token_ids)


@pytest.mark.parametrize("bad", [-1, VOCABULARY])
@pytest.mark.parametrize("where", ["root", "child"])
def test_tokens_without_a_vector(bad: int, where: str) -> None:
    scores = random_scores(4, False)
    (scores.candidates.root if where == "root" else scores.candidates.token_ids[:, -1])[1] = bad
    with pytest.raises(ValueError, match="token ids that the scorer's tables do not"):
        BestFirstTreeBuilder().build(scores.candidates, scores, torch.tensor([4, 4, 4]))


def test_vectors_of_another_size() -> None:
    scores = random_scores(4, False)
    short = TokenPairScores(
        scores.candidates, scores.rows, scores.depth_vectors[:2], 0.3, normalized=False
    )
    with pytest.raises(ValueError, match="token pairs need vectors"):
        BestFirstTreeBuilder().build(short.candidates, short, torch.tensor([4, 4, 4]))


def test_recycled_memory_shows_nothing_of_the_tree_before() -> None:
    recycling, fresh = BestFirstTreeBuilder(recycle=True), BestFirstTreeBuilder()
    for seed in range(40):
        scores = random_scores(7 + 14 * (seed % 4), normalized=False, batch_size=2)
        budgets = torch.tensor([30, seed])
        found = recycling.build(scores.candidates, scores, budgets)
        expected = fresh.build(scores.candidates, scores, budgets)
        for field in dataclasses.fields(found):
            assert torch.equal(getattr(found, field.name), getattr(expected, field.name))
