"""``train-tdes`` and ``bench tdes`` from trace folders to files."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from synthetic_rounds import CANDIDATES, DEPTH, VOCABULARY, embedding, simulate

from graft_sglang.benchmarks import tdes as study
from graft_sglang.benchmarks.tdes_speed import BATCH_SIZES, as_table, measure
from graft_sglang.commands import train_tdes
from graft_sglang.commands.bench import tdes
from graft_sglang.evaluation.replay import ReplayRounds
from graft_sglang.fingerprint import fingerprint_embedding
from graft_sglang.scorers.tdes.checkpoint import load_checkpoint
from graft_sglang.scorers.tdes.scorer import TDESScorer
from graft_sglang.scorers.tdes.tables import ProjectedTables
from graft_sglang.traces import RoundRecord, TraceMeta, TraceWriter, split_by_prompt


@pytest.fixture(scope="module")
def records() -> list[RoundRecord]:
    return simulate(40, 12, seed=1, task="gsm8k") + simulate(30, 12, seed=2, task="mbpp")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, records: list[RoundRecord]) -> Path:
    """A folder with ``target`` and ``traces``."""
    folder = tmp_path_factory.mktemp("pair")
    (folder / "target").mkdir()
    padded = torch.cat((embedding(), torch.zeros(8, 48))).bfloat16()
    save_file({"model.embed_tokens.weight": padded}, folder / "target" / "model.safetensors")
    (folder / "target" / "config.json").write_text(json.dumps({"vocab_size": VOCABULARY}))
    meta = TraceMeta(fingerprint_embedding(embedding()), DEPTH, CANDIDATES, "toy", "2026-01-01")
    writer = TraceWriter(folder / "traces", meta)
    for record in records:
        writer.put(record)
    writer.close()
    return folder


def call(module: object, *arguments: object) -> int:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)  # type: ignore[attr-defined]
    return module.run(parser.parse_args([str(a) for a in arguments]))  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def checkpoint(pair: Path) -> Path:
    out = pair / "tdes"
    arguments = ("--traces", pair / "traces", "--target", pair / "target", "--out", out)
    code = call(
        train_tdes, *arguments, "--epochs", 3, "--width", 32, "--batch-rounds", 16,
        "--report-budget", 8, "--learning-rate", 0.005,
    )  # fmt: skip
    assert code == 0
    return out


def test_training_writes_a_checkpoint(checkpoint: Path, records: list[RoundRecord]) -> None:
    model, info = load_checkpoint(checkpoint)
    assert (model.hidden_size, model.depth, model.width) == (48, DEPTH, 32)
    assert info.vocab_size == VOCABULARY
    assert info.target_fingerprint == fingerprint_embedding(embedding())
    parts = split_by_prompt(records)
    assert info.data["train"]["rounds"] == len(parts["train"])
    assert info.data["validation"]["prompts"] == len({r.request_id for r in parts["validation"]})
    assert set(info.data["train"]["tasks"]) == {"gsm8k", "mbpp"}
    assert len(info.losses) == 3
    last = info.losses[info.chosen_epoch - 1]
    assert last["mat_normalized"] > last["mat_ddtree"] > 1


def test_the_bench_writes_tables_and_plots(
    pair: Path,
    checkpoint: Path,
    records: list[RoundRecord],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("matplotlib")
    chosen_on: list[set[str]] = []
    choose = study.choose_beta

    def watch(
        form: type[TDESScorer], tables: ProjectedTables, rounds: ReplayRounds, *rest: Any
    ) -> Any:
        chosen_on.append(set(rounds.request_ids))
        return choose(form, tables, rounds, *rest)

    monkeypatch.setattr(study, "choose_beta", watch)
    out = pair / "bench"
    code = call(
        tdes, "--traces", pair / "traces", "--target", pair / "target", "--checkpoint",
        checkpoint, "--out", out, "--budgets", 4, 8, "--beta-budget", 8, "--epochs", 2,
        "--width", 16, "--batch-rounds", 16,
    )  # fmt: skip
    assert code == 0
    names = ("beta", "budgets", "mismatch", "cross_task")
    for name in names:
        assert (out / f"tdes_{name}.png").stat().st_size > 5000
    document = json.loads((out / "tdes.json").read_text())
    assert [(r["budget"], r["method"]) for r in document["budgets"]] == [
        (b, m) for b in (4, 8) for m in ("ddtree", "tdes", "tdes_normalized")
    ]
    for rows in (document["tasks"], document["cross_task"]):
        assert {row["task"] for row in rows} == {"gsm8k", "mbpp"}
    chosen = {row["form"]: row for row in document["beta"] if row["chosen"]}
    for form in ("tdes", "tdes_normalized"):
        sweep = [row for row in document["beta"] if row["form"] == form]
        assert chosen[form]["validation_mat"] == max(row["validation_mat"] for row in sweep)
        zero = sweep[0]
        assert zero["beta"] == 0
        assert zero["mat_change"]["value"] == pytest.approx(0, abs=1e-12)
        assert zero["mismatch_reduction"]["value"] == pytest.approx(0, abs=1e-12)
    assert chosen["tdes_normalized"]["mat_change"]["value"] > 0.1
    validation = {r.request_id for r in split_by_prompt(records)["validation"]}
    own = {prompt for prompt in validation if prompt.startswith("gsm8k/")}
    assert chosen_on == [validation, validation, own, own]
    reported = {r.request_id for r in split_by_prompt(records)["report"]}
    assert document["budgets"][0]["prompts"] == len(reported)
    text = (out / "tdes.md").read_text()
    assert text in capsys.readouterr().out
    assert "Trained on gsm8k only" in text


def test_the_bench_reports_on_a_folder_of_its_own(
    pair: Path, checkpoint: Path, tmp_path: Path
) -> None:
    meta = TraceMeta(fingerprint_embedding(embedding()), DEPTH, CANDIDATES, "toy", "2026-01-01")
    writer = TraceWriter(tmp_path / "held-out", meta)
    for record in simulate(9, 12, seed=3, task="alpaca"):
        writer.put(record)
    writer.close()
    code = call(
        tdes, "--traces", pair / "traces", "--report-traces", tmp_path / "held-out", "--target",
        pair / "target", "--checkpoint", checkpoint, "--out", tmp_path / "bench", "--budgets", 8,
        "--beta-budget", 8, "--betas", 0, 0.2, "--no-cross-task",
    )  # fmt: skip
    assert code == 0
    document = json.loads((tmp_path / "bench" / "tdes.json").read_text())
    assert document["budgets"][0]["prompts"] == 9
    assert {row["task"] for row in document["tasks"]} == {"alpaca"}


def test_faults_are_one_sentence(
    pair: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ("--traces", pair / "traces", "--target")
    (tmp_path / "other").mkdir()
    assert call(train_tdes, *base, tmp_path / "other", "--out", tmp_path / "x") == 1
    assert "has no input embedding" in capsys.readouterr().err
    save_file({"wte.weight": embedding(seed=9)}, tmp_path / "other" / "model.safetensors")
    assert call(train_tdes, *base, tmp_path / "other", "--out", tmp_path / "x") == 1
    assert "is not the target that the traces were recorded with" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
    code = call(tdes, *base, pair / "target", "--checkpoint", tmp_path, "--out", tmp_path / "y")
    assert code == 1
    assert "not a TDES checkpoint" in capsys.readouterr().err


def test_folders_of_different_pairs_do_not_mix(
    pair: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meta = TraceMeta("beef", DEPTH, CANDIDATES, "toy", "2026-01-01")
    TraceWriter(tmp_path, dataclasses.replace(meta)).close()
    arguments = ("--traces", pair / "traces", tmp_path, "--target", pair / "target")
    assert call(train_tdes, *arguments, "--out", tmp_path / "x") == 1
    assert "don't go together" in capsys.readouterr().err


def test_the_speed_table_has_a_line_a_row() -> None:
    rows = measure(vocabulary=300, repeats=3)
    assert len(rows) == 3 * 2 * len(BATCH_SIZES)
    lines = as_table(rows).splitlines()
    assert len(lines) == 2 + len(rows)
    assert lines[3].startswith("| tdes | 1 | zipf |")
    assert all(0 < row.p5_ms <= row.median_ms <= row.p99_ms for row in rows)
