"""Scores equal the literal equations; beta 0 is DDTree; servers are told what is wrong."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from literal import edge_scores
from synthetic_rounds import CANDIDATES, DEPTH, VOCABULARY, candidates_of, embedding

from graft_sglang.contracts import ComponentContext, DraftCandidates
from graft_sglang.fingerprint import fingerprint_embedding
from graft_sglang.registry import edge_scorers
from graft_sglang.scorers.ddtree import DDTreeScorer
from graft_sglang.scorers.tdes.checkpoint import CheckpointInfo, save_checkpoint
from graft_sglang.scorers.tdes.model import TDESModel
from graft_sglang.scorers.tdes.scorer import NormalizedTDESScorer, TDESScorer
from graft_sglang.scorers.tdes.tables import ProjectedTables
from graft_sglang.tree.best_first import BestFirstTreeBuilder

HIDDEN = 24


def random_model(depth: int = DEPTH, width: int = 16) -> TDESModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        model = TDESModel(HIDDEN, depth, width)
        with torch.no_grad():
            model.depth_embedding.normal_()
            model.log_s.fill_(0.7)
    return model.requires_grad_(False)


def batch(size: int, seed: int = 0) -> DraftCandidates:
    rng = np.random.default_rng(seed)
    rounds = [candidates_of(rng, int(rng.integers(VOCABULARY)), 0.5) for _ in range(size)]
    return DraftCandidates(
        torch.cat([c.root for c in rounds]),
        torch.cat([c.token_ids for c in rounds]),
        torch.cat([c.log_probs for c in rounds]),
        torch.cat([c.hidden_cosines for c in rounds]),
    )


@pytest.mark.parametrize("form", [TDESScorer, NormalizedTDESScorer])
@pytest.mark.parametrize("beta", [0.2, 1.0])
def test_scores_are_the_equations(form: type[TDESScorer], beta: float) -> None:
    model, table = random_model(), embedding(HIDDEN)
    scorer = form(ProjectedTables.project(model, table), beta)
    # A larger batch first: what it leaves in the buffers must not show.
    scorer.score(batch(5, seed=1))
    for size in (3, 1):
        candidates = batch(size)
        found = scorer.score(candidates).values
        assert found.shape == (size, DEPTH, CANDIDATES, CANDIDATES)
        assert found.dtype is torch.float32
        expected = edge_scores(model, table, candidates, beta, form is NormalizedTDESScorer)
        read = ~expected.isnan()
        assert int(read.sum()) == size * ((DEPTH - 1) * CANDIDATES + 1) * CANDIDATES
        torch.testing.assert_close(found.double()[read], expected[read], rtol=0, atol=1e-5)
        # The test has teeth only if the residual matters.
        flat = candidates.log_probs[:, :, None].expand_as(found)
        assert (found - flat)[read].abs().mean() > 0.05


def test_scores_outlive_the_next_call() -> None:
    scorer = TDESScorer(ProjectedTables.project(random_model(), embedding(HIDDEN)), 0.5)
    first = scorer.score(batch(2)).values
    kept = first.clone()
    scorer.score(batch(2, seed=9))
    torch.testing.assert_close(first, kept, rtol=0, atol=0)


def test_a_drafter_with_fewer_depths_uses_the_first_ones() -> None:
    tables = ProjectedTables.project(random_model(), embedding(HIDDEN))
    whole = batch(2)
    short = DraftCandidates(
        whole.root, whole.token_ids[:, :2], whole.log_probs[:, :2], whole.hidden_cosines[:, :1]
    )
    torch.testing.assert_close(
        TDESScorer(tables, 0.4).score(short).values,
        TDESScorer(tables, 0.4).score(whole).values[:, :2],
    )


def test_beta_zero_is_ddtree_node_by_node() -> None:
    tables = ProjectedTables.project(random_model(), embedding(HIDDEN))
    candidates = batch(8)
    # Equal scores are where any rounding would show.
    candidates.log_probs[4:] = candidates.log_probs[4:].mul(2).round().div(2)
    budgets = torch.arange(8) * 9 + 1
    builder = BestFirstTreeBuilder()
    ours = builder.build(candidates, TDESScorer(tables, 0.0).score(candidates), budgets)
    ddtree = builder.build(candidates, DDTreeScorer().score(candidates), budgets)
    for field in dataclasses.fields(ours):
        assert torch.equal(getattr(ours, field.name), getattr(ddtree, field.name)), field.name
    other = builder.build(candidates, TDESScorer(tables, 0.2).score(candidates), budgets)
    assert not torch.equal(other.token_ids, ddtree.token_ids)


def test_normalized_paths_share_the_drafters_mass() -> None:
    tables = ProjectedTables.project(random_model(), embedding(HIDDEN))
    candidates = batch(2)
    values = NormalizedTDESScorer(tables, 3.0).score(candidates).values
    mass = candidates.log_probs.exp().sum(-1)
    torch.testing.assert_close(
        values.exp().sum(-1), mass[:, :, None].expand(-1, -1, CANDIDATES), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("beta", [-0.1, float("nan"), float("inf")])
def test_bad_betas(beta: float) -> None:
    tables = ProjectedTables.project(random_model(), embedding(HIDDEN))
    with pytest.raises(ValueError, match="beta must be a number from 0 up"):
        TDESScorer(tables, beta)


def saved(folder: Path, depth: int = DEPTH) -> Path:
    info = CheckpointInfo(
        target_fingerprint=fingerprint_embedding(embedding(HIDDEN)),
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        depth=depth,
        candidates=CANDIDATES,
        width=16,
    )
    save_checkpoint(folder, random_model(depth), info)
    return folder


def context(path: Path | None, **changes: object) -> ComponentContext:
    options: dict[str, object] = {"tdes_path": None if path is None else str(path), "beta": 0.3}
    values: dict[str, object] = {
        "depth": DEPTH,
        "num_candidates": CANDIDATES,
        "max_budget": 64,
        "vocab_size": VOCABULARY,
        "device": torch.device("cpu"),
        "options": options,
        "target_embedding": lambda: embedding(HIDDEN),
    }
    return ComponentContext(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "form"), [("tdes", TDESScorer), ("tdes_normalized", NormalizedTDESScorer)]
)
def test_the_registry_builds_scorers(tmp_path: Path, name: str, form: type[TDESScorer]) -> None:
    scorer = edge_scorers.get(name).from_context(context(saved(tmp_path)))
    assert type(scorer) is form
    candidates = batch(2)
    expected = form(ProjectedTables.project(random_model(), embedding(HIDDEN)), 0.3)
    assert torch.equal(scorer.score(candidates).values, expected.score(candidates).values)


def test_a_target_in_bfloat16_is_the_same_target(tmp_path: Path) -> None:
    rounded = embedding(HIDDEN).bfloat16()
    scorer = TDESScorer.from_context(context(saved(tmp_path), target_embedding=lambda: rounded))
    assert scorer.score(batch(1)).values.dtype is torch.float32


def test_what_a_server_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = saved(tmp_path)
    with pytest.raises(ValueError, match="name one with --graft-tdes-path"):
        TDESScorer.from_context(context(None))
    with pytest.raises(ValueError, match="knows 4 draft depths, but this drafter has 5"):
        TDESScorer.from_context(context(path, depth=5))
    wide = torch.cat((embedding(HIDDEN), embedding(HIDDEN)), dim=1)
    with pytest.raises(ValueError, match="embeddings of 24 numbers, but this target has 48"):
        TDESScorer.from_context(context(path, target_embedding=lambda: wide))
    long = torch.cat((embedding(HIDDEN), embedding(HIDDEN)))
    with pytest.raises(ValueError, match="vocabulary of 48 tokens, but this target has 96"):
        TDESScorer.from_context(context(path, target_embedding=lambda: long))
    with pytest.raises(ValueError, match="made for another target of the same size"):
        TDESScorer.from_context(context(path, target_embedding=lambda: embedding(HIDDEN, seed=4)))
    with caplog.at_level(logging.WARNING):
        TDESScorer.from_context(context(path, num_candidates=3))
    assert "trained on 6 candidates a depth; this server uses 3" in caplog.text
