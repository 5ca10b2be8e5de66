"""Replay against a walk in plain Python, and standard errors against simulation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from synthetic_rounds import BUDGET, DEPTH, embedding, simulate

from graft_sglang.benchmarks import reference
from graft_sglang.contracts import DraftCandidates, EdgeScorer
from graft_sglang.evaluation.clustered import mean, ratio, reduction, relative_change
from graft_sglang.evaluation.replay import replay, replayable
from graft_sglang.scorers.ddtree import DDTreeScorer
from graft_sglang.scorers.tdes.model import TDESModel
from graft_sglang.scorers.tdes.scorer import NormalizedTDESScorer, TDESScorer
from graft_sglang.scorers.tdes.tables import ProjectedTables
from graft_sglang.traces import by_request, continuation
from graft_sglang.tree.chain import ChainTreeBuilder

BUDGETS = (1, 4, 9, 16, 40)


def some_scorers() -> list[EdgeScorer]:
    torch.manual_seed(0)
    tables = ProjectedTables.project(TDESModel(48, DEPTH, 16), embedding())
    return [DDTreeScorer(), TDESScorer(tables, 3.0), NormalizedTDESScorer(tables, 3.0)]


@pytest.mark.parametrize("which", range(3))
def test_replay_is_the_slow_walk_for_every_budget(which: int) -> None:
    scorer = some_scorers()[which]
    rounds = replayable(simulate(8, 12, hint=1.5))
    found = replay(rounds, scorer, BUDGETS)
    kinds = {"mismatch": 0, "absent": 0, "full": 0}
    for i in range(len(rounds)):
        at = slice(i, i + 1)
        candidates = DraftCandidates(
            rounds.root[at], rounds.token_ids[at], rounds.log_probs[at], torch.zeros(1, DEPTH - 1)
        )
        values = scorer.score(candidates).values[0].tolist()
        text = rounds.continuations[i].tolist()
        for column, budget in enumerate(BUDGETS):
            tree = reference.best_first(
                int(rounds.root[i]), rounds.token_ids[i].tolist(), values, budget, DEPTH
            )
            # Off the true path the tokens don't matter: the walk never gets there.
            truth = [text[d] if d < DEPTH else -1 for d in tree.depths]
            path, _ = reference.walk(tree, truth)
            assert found.committed[i, column] == len(path)
            stopped = len(path) - 1 < DEPTH
            assert found.stopped[i, column] == stopped
            below = zip(tree.depths, tree.tokens, strict=True)
            mismatched = stopped and (len(path), text[len(path) - 1]) in below
            assert found.mismatched[i, column] == mismatched
            kinds["mismatch" if mismatched else "absent" if stopped else "full"] += 1
    assert min(kinds.values()) > 3, kinds


def test_ddtrees_replay_is_what_was_recorded() -> None:
    records = simulate(8, 12)
    rounds = replayable(records)
    kept = [
        record
        for request in by_request(records).values()
        for i, record in enumerate(request)
        if len(continuation(request, i)) >= DEPTH
    ]
    assert DEPTH < len(kept) < len(records)
    found = replay(rounds, DDTreeScorer(), [BUDGET])
    assert found.committed[:, 0].tolist() == [record.committed for record in kept]
    assert found.request_ids.tolist() == [record.request_id for record in kept]


def test_any_nested_builder() -> None:
    rounds = replayable(simulate(4, 12))
    chain = replay(rounds, DDTreeScorer(), [2, DEPTH], ChainTreeBuilder())
    top = rounds.token_ids[:, :, 0] == rounds.continuations
    expected = top.long().cumprod(1).sum(1) + 1
    assert chain.committed[:, 1].tolist() == expected.tolist()
    assert chain.committed[:, 0].tolist() == expected.clamp(max=3).tolist()
    assert not chain.mismatched.any()


def test_sampled_and_short_rounds_are_not_replayed() -> None:
    records = simulate(2, 6)
    first = dataclasses.replace(records[0], greedy=False)
    assert len(replayable([first, *records[1:]])) == len(replayable(records)) - 1
    with pytest.raises(ValueError, match="No recorded round can be replayed"):
        replayable([dataclasses.replace(r, greedy=False) for r in records])


def test_select() -> None:
    rounds = replayable(simulate(4, 8))
    mask = rounds.request_ids == "toy/2"
    chosen = rounds.select(mask)
    assert len(chosen) == mask.sum() > 0
    assert set(chosen.tasks) == {"toy"}
    whole = replay(rounds, DDTreeScorer(), [9]).committed[mask]
    assert (replay(chosen, DDTreeScorer(), [9]).committed == whole).all()


def test_clustered_errors_by_hand() -> None:
    # Two prompts of two rounds: residuals from the mean 4 sum to -6 and 6.
    found = mean(np.array([1.0, 1.0, 7.0, 7.0]), ["a", "a", "b", "b"])
    assert found.value == 4
    assert found.se == pytest.approx(np.sqrt(2 * (36 + 36)) / 4)
    change = relative_change(np.array([3.0, 3.0]), np.array([2.0, 1.0]), ["a", "b"])
    assert change.value == 1
    assert change.se == pytest.approx(np.sqrt(2 * ((3 - 4) ** 2 + (3 - 2) ** 2)) / 3)
    assert np.isnan(mean(np.array([1.0, 2.0]), ["a", "a"]).se)
    assert np.isnan(ratio(np.zeros(2), np.zeros(2), ["a", "b"]).value)


def test_clustered_errors_are_those_of_repeated_samples() -> None:
    """Simulated: prompts with an effect of their own; the spread over samples is the truth."""
    rng = np.random.default_rng(0)
    prompts, each = 60, 15
    clusters = [str(i) for i in np.repeat(np.arange(prompts), each)]
    values: dict[str, list[float]] = {"mean": [], "change": [], "reduction": []}
    errors: dict[str, list[float]] = {"mean": [], "change": [], "reduction": []}
    for _ in range(400):
        effect = np.repeat(rng.normal(size=prompts), each)
        base = 5 + effect + rng.normal(size=prompts * each)
        gain = np.repeat(rng.normal(0.3, 0.2, prompts), each)
        new = base + gain + 0.1 * rng.normal(size=prompts * each)
        rate = np.repeat(rng.uniform(0.2, 0.6, prompts), each)
        ones = np.ones(prompts * each)
        miss = rng.random(prompts * each) < rate
        less = miss & (rng.random(prompts * each) < 0.5)
        found = {
            "mean": mean(base, clusters),
            "change": relative_change(new, base, clusters),
            "reduction": reduction(ratio(less, ones, clusters), ratio(miss, ones, clusters)),
        }
        for name, estimate in found.items():
            values[name].append(estimate.value)
            errors[name].append(estimate.se)
    for name in values:
        assert np.mean(errors[name]) == pytest.approx(np.std(values[name]), rel=0.15), name
    naive = 1 / np.sqrt(prompts * each)
    assert np.mean(errors["mean"]) > 3 * naive
    assert np.mean(values["reduction"]) == pytest.approx(0.5, abs=0.01)
