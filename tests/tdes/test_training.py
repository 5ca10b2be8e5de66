"""A planted compatibility is learnt, and learning is repeatable and reported."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from synthetic_rounds import CANDIDATES, DEPTH, embedding, simulate, successors

from graft_sglang.contracts import EdgeScorer
from graft_sglang.evaluation.replay import ReplayRounds, replay, replayable
from graft_sglang.scorers.ddtree import DDTreeScorer
from graft_sglang.scorers.tdes.model import TDESModel
from graft_sglang.scorers.tdes.scorer import NormalizedTDESScorer, TDESScorer
from graft_sglang.scorers.tdes.tables import ProjectedTables
from graft_sglang.scorers.tdes.train import TrainOptions, TrainResult, train

OPTIONS = TrainOptions(epochs=8, learning_rate=5e-3, batch_rounds=16, width=48)


@pytest.fixture(scope="module")
def planted() -> TrainResult:
    """The drafter's log q say nothing (hint 0): only the parent decides the child."""
    return train(
        simulate(60, 20, seed=1, hint=0.0),
        simulate(8, 20, seed=2, hint=0.0),
        embedding(),
        OPTIONS,
        progress=False,
    )


@pytest.fixture(scope="module")
def held_out() -> ReplayRounds:
    return replayable(simulate(20, 20, seed=3, hint=0.0))


def edge_accuracy(scorer: EdgeScorer, rounds: ReplayRounds) -> float:
    """Share of parents whose best child is the target's next token, at depths 2 and below."""
    from graft_sglang.contracts import DraftCandidates

    candidates = DraftCandidates(
        rounds.root, rounds.token_ids, rounds.log_probs, torch.zeros(len(rounds), DEPTH - 1)
    )
    best = scorer.score(candidates).values[:, 1:].argmax(-1)
    best = best.expand(-1, -1, CANDIDATES)
    chosen = rounds.token_ids[:, 1:].gather(-1, best)
    return float(
        (chosen == torch.from_numpy(successors())[rounds.token_ids[:, :-1]]).float().mean()
    )


def test_a_planted_compatibility_is_learnt(planted: TrainResult, held_out: ReplayRounds) -> None:
    tables = ProjectedTables.project(planted.model, embedding())
    assert edge_accuracy(TDESScorer(tables, 1.0), held_out) > 0.95
    assert edge_accuracy(NormalizedTDESScorer(tables, 1.0), held_out) > 0.95
    chance = 1 / CANDIDATES
    assert abs(edge_accuracy(DDTreeScorer(), held_out) - chance) < 0.05


def test_what_is_learnt_is_accepted(planted: TrainResult, held_out: ReplayRounds) -> None:
    tables = ProjectedTables.project(planted.model, embedding())
    base = replay(held_out, DDTreeScorer(), [8]).committed.mean()
    ours = replay(held_out, NormalizedTDESScorer(tables, 1.0), [8]).committed.mean()
    assert ours > 1.5 * base


def test_every_epoch_is_reported(planted: TrainResult) -> None:
    assert len(planted.epochs) == OPTIONS.epochs
    for report in planted.epochs:
        assert set(report) == {"kl", "pair", "bce", "validation_kl"}
    for name in ("kl", "pair", "bce", "validation_kl"):
        assert planted.epochs[-1][name] < 0.5 * planted.epochs[0][name], name
    best = min(range(OPTIONS.epochs), key=lambda i: planted.epochs[i]["validation_kl"])
    assert planted.chosen_epoch == best + 1


@pytest.mark.parametrize("name", ["kl", "pair", "bce"])
def test_each_loss_alone_teaches(name: str) -> None:
    weights = dataclasses.replace(
        OPTIONS.losses, **{other: float(other == name) for other in ("kl", "pair", "bce")}
    )
    options = dataclasses.replace(OPTIONS, epochs=4, losses=weights)
    data = simulate(20, 20, seed=1, hint=0.0)
    result = train(data, data[:40], embedding(), options, progress=False)
    first, last = result.epochs[0], result.epochs[-1]
    assert last[name] < 0.8 * first[name]


def test_seeds_repeat_and_differ() -> None:
    data = simulate(6, 10)
    options = dataclasses.replace(OPTIONS, epochs=2)

    def weights(seed: int) -> torch.Tensor:
        chosen = dataclasses.replace(options, seed=seed)
        return train(data, data, embedding(), chosen, progress=False).model.g_parent.weight

    torch.manual_seed(123)
    first = weights(5)
    torch.manual_seed(321)
    assert torch.equal(first, weights(5))
    assert not torch.equal(first, weights(6))


def test_the_kept_epoch_and_further_figures() -> None:
    data = simulate(6, 10)
    seen: list[TDESModel] = []
    # The report of the target's bad text: validation data that training can only make worse.
    contrary = [
        dataclasses.replace(r, target_logits=-r.target_logits) for r in simulate(4, 10, seed=8)
    ]

    def figure(model: TDESModel) -> dict[str, float]:
        seen.append(model)
        return {"figure": float(len(seen))}

    result = train(data, contrary, embedding(), OPTIONS, evaluate=figure, progress=False)
    assert [report["figure"] for report in result.epochs] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert result.chosen_epoch == 1
    options = dataclasses.replace(OPTIONS, keep_best=False)
    last = train(data, contrary, embedding(), options, progress=False)
    assert last.chosen_epoch == OPTIONS.epochs
    one = dataclasses.replace(OPTIONS, epochs=1)
    alone = train(data, contrary, embedding(), one, progress=False)
    assert torch.equal(result.model.g_child.weight, alone.model.g_child.weight)
    assert not torch.equal(result.model.g_child.weight, last.model.g_child.weight)


def test_bad_numbers_stop_the_training() -> None:
    data = simulate(2, 5)
    data[3].target_logits[:] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        train(data, data, embedding(), OPTIONS, progress=False)
