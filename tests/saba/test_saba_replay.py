"""Nested replay, oracle tracking, and the two commands, on synthetic rounds."""

from __future__ import annotations

import argparse
import json

import numpy as np
import pytest
import torch
from saba_cases import CANDIDATES, DEPTH, GRID, document, recorded_rounds

from graft_sglang.budgeters.saba import oracle
from graft_sglang.budgeters.saba.document import load
from graft_sglang.budgeters.saba.pipeline import timed_rounds
from graft_sglang.budgeters.saba.replay import candidates_of, replay
from graft_sglang.budgeters.saba.selection_cost import selection_ms
from graft_sglang.budgeters.saba.table import SabaTablePolicy
from graft_sglang.commands import fit_saba
from graft_sglang.commands.bench import saba as bench_saba
from graft_sglang.scorers.ddtree import DDTreeScorer
from graft_sglang.traces import TraceMeta, TraceWriter, with_continuations
from graft_sglang.tree.best_first import BestFirstTreeBuilder

SCORER = DDTreeScorer()


def test_every_budget_equals_a_slow_walk_of_its_own_tree() -> None:
    rounds = recorded_rounds(4, 12)
    replayed = replay(rounds, SCORER, GRID)
    ahead = dict(continued_by_place(rounds))
    assert len(replayed.records) > 20
    for row, record in enumerate(replayed.records):
        candidates = candidates_of(record)
        for place, budget in enumerate(GRID):
            tree = BestFirstTreeBuilder().build(
                candidates, SCORER.score(candidates), torch.tensor([budget])
            )
            tokens, parents = tree.token_ids[0].tolist(), tree.parents[0].tolist()
            node, committed = 0, 1
            for token in ahead[record.request_id, record.round_index]:
                children = [
                    n for n, parent in enumerate(parents) if parent == node and tokens[n] == token
                ]
                if not children:
                    break
                node, committed = children[0], committed + 1
            assert replayed.committed[row, place] == committed
            mass = sum(np.exp(s) for s in tree.scores[0, 1 : int(tree.num_nodes[0])].tolist())
            assert replayed.expected[row, place] == pytest.approx(mass)


def continued_by_place(rounds):
    for record, tokens in with_continuations(rounds):
        yield (record.request_id, record.round_index), tokens.tolist()


def test_the_replay_at_the_served_budget_is_what_was_committed() -> None:
    replayed = replay(recorded_rounds(4, 12, budgets=(2, 16, 64)), SCORER, GRID)
    for row, record in enumerate(replayed.records):
        assert replayed.committed[row, GRID.index(record.budget)] == record.committed


def test_rounds_without_enough_tokens_ahead_or_a_gap_are_left_out() -> None:
    rounds = recorded_rounds(1, 12)
    whole = {record.round_index for record, _ in with_continuations(rounds)}
    assert 0 in whole
    assert 11 not in whole
    gap = {record.round_index for record, _ in with_continuations(rounds[:3] + rounds[4:])}
    assert gap < whole
    assert 2 not in gap
    with pytest.raises(ValueError, match="No recorded round can be replayed"):
        replay(rounds[-1:], SCORER, GRID)


def test_batched_and_untimed_rounds_time_nothing() -> None:
    from dataclasses import replace

    rounds = recorded_rounds(1, 6)
    rounds[1] = replace(rounds[1], batch_size=2)
    rounds[2] = replace(rounds[2], stage_seconds=np.full(8, np.nan, np.float32))
    timed = timed_rounds(rounds)
    assert len(timed.seconds) == 4
    assert timed.budgets.tolist() == [64.0] * 4
    wanted = 0.020 + 2e-4 * 64 + 1e-7 * 64 * rounds[0].prefix_len
    assert timed.seconds[0] == pytest.approx(wanted, rel=1e-5)


def test_tracking_by_hand() -> None:
    replayed = replay(recorded_rounds(2, 12), SCORER, (2, 8, 32))
    costs = oracle.round_costs(replayed, document().cost_table)
    rates = replayed.committed / costs
    best = oracle.track("best", rates.argmax(axis=1), replayed, costs)
    assert best.mean_retained == best.share_close == 1.0
    first = oracle.track("fixed 2", oracle.fixed_choices(replayed, 0), replayed, costs)
    assert first.nodes == 2.0
    assert first.mat == replayed.committed[:, 0].mean()
    wanted = [rates[i, 0] / max(rates[i]) for i in range(len(rates))]
    assert first.retained.tolist() == pytest.approx(wanted)
    assert first.tokens_per_second == pytest.approx(
        replayed.committed[:, 0].sum() / costs[:, 0].sum()
    )
    chosen = oracle.policy_choices(SabaTablePolicy(document(), (2, 8, 32)), replayed, costs, SCORER)
    assert set(chosen.tolist()) <= {0, 1, 2}
    rows = oracle.by_task({"policy": chosen, "fixed 2": chosen}, replayed, costs)
    assert [row.task for row in rows] == ["task0", "task1"]
    assert {row.policy for row in rows} == {"policy"}
    thirds = oracle.by_difficulty(replayed, costs)
    assert thirds.mat == sorted(thirds.mat, reverse=True)


@pytest.fixture
def traces(tmp_path):
    folder = tmp_path / "traces"
    writer = TraceWriter(folder, TraceMeta("", DEPTH, CANDIDATES, "drafter", "2026-01-01"))
    for record in recorded_rounds(12, 25, budgets=(1, 4, 16, 32, 64)):
        writer.put(record)
    writer.close()
    return folder


def command(module, *words: str) -> int:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return module.run(parser.parse_args(list(words)))


def test_fit_and_bench_from_the_command_line(traces, tmp_path, capsys) -> None:
    output = tmp_path / "fit" / "saba.json"
    grid = "0,1,2,4,8,16,32,64"
    words = ("--traces", str(traces), "--out", str(output), "--grid", grid, "--bins", "3")
    assert command(fit_saba, *words) == 0
    fitted = load(output)
    assert fitted.grid == GRID
    assert (fitted.cost.c0, fitted.cost.c1, fitted.cost.c2) == pytest.approx(
        (0.020, 2e-4, 1e-7), rel=0.05
    )
    assert fitted.quality["r2_cost"] > 0.99
    figures = tmp_path / "bench.json"
    assert (
        command(
            bench_saba, "--traces", str(traces), "--saba", str(output), "--json", str(figures),
            "--budgets", "0,1,4,16,64", "--limit", "100", "--repeats", "20",
        )
        == 0
    )  # fmt: skip
    tracking = {row["policy"]: row for row in json.loads(figures.read_text())["tracking"]}
    assert 0.5 < tracking["expected_throughput"]["retained"] <= 1
    assert tracking["fixed 64"]["nodes"] == 64
    assert "| fixed 16 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--grid", "a,b"), "--grid must be"),
        (("--grid", "0"), "--grid must be"),
        (("--grid", "32:5000:16"), "--grid must be"),
        (("--edge-scorer", "nobody"), "Unknown edge scorer"),
    ],
)
def test_a_fit_that_cannot_be_made_says_why(traces, capsys, words, says) -> None:
    assert command(fit_saba, "--traces", str(traces), *words) == 1
    assert says in capsys.readouterr().err


def test_the_papers_grid() -> None:
    assert fit_saba.parse_grid(fit_saba.PAPER_GRID) == list(range(32, 513, 16))


def test_selection_is_timed() -> None:
    made = document(depth=15)
    times = selection_ms(SabaTablePolicy(made), repeats=50)
    assert 0 < times.select_median <= times.select_p99
    assert times.observe_median > 0
