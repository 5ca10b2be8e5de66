"""Checkpoints come back; every kind of bad one is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graft_sglang.scorers.tdes.checkpoint import (
    INFO_FILE,
    WEIGHTS_FILE,
    CheckpointInfo,
    load_checkpoint,
    save_checkpoint,
)
from graft_sglang.scorers.tdes.model import TDESModel

INFO = CheckpointInfo(
    target_fingerprint="f00d",
    vocab_size=48,
    hidden_size=6,
    depth=3,
    candidates=4,
    width=8,
    data={"train": {"rounds": 5}},
    losses=[{"kl": 0.5}],
    chosen_epoch=1,
    command="graft-sglang train-tdes",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = TDESModel(6, 3, 8)
    with torch.no_grad():
        model.depth_embedding.normal_()
        model.log_s.fill_(0.3)
    save_checkpoint(tmp_path / "tdes", model, INFO)
    return tmp_path / "tdes"


def test_a_checkpoint_comes_back(folder: Path) -> None:
    model, info = load_checkpoint(folder)
    assert info == INFO
    torch.manual_seed(0)
    again = TDESModel(6, 3, 8)
    assert torch.equal(model.g_parent.weight, again.g_parent.weight)
    assert torch.equal(model.g_child.weight, again.g_child.weight)
    assert float(model.log_s) == pytest.approx(0.3)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def edit_info(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        values = json.loads((folder / INFO_FILE).read_text())
        (folder / INFO_FILE).write_text(json.dumps({**values, **changes}))

    return edit


def truncate(name: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])

    return edit


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def poison(folder: Path) -> None:
    model, info = load_checkpoint(folder)
    model.g_child.weight[2, 3] = float("nan")
    save_checkpoint(folder, model, info)


def narrow(folder: Path) -> None:
    save_checkpoint(folder, TDESModel(6, 3, 7), INFO)


def drop_field(folder: Path) -> None:
    values = json.loads((folder / INFO_FILE).read_text())
    del values["vocab_size"]
    (folder / INFO_FILE).write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (remove(WEIGHTS_FILE), r"not a TDES checkpoint: it has no tdes\.safetensors"),
        (remove(INFO_FILE), r"not a TDES checkpoint: it has no tdes\.json"),
        (truncate(WEIGHTS_FILE), "truncated or damaged"),
        (truncate(INFO_FILE), "truncated or not JSON"),
        (edit_info(format_version=2), "TDES format version 2; this installation reads version 1"),
        (edit_info(width="8"), "must give width as a positive whole number"),
        (drop_field, "must hold exactly the fields"),
        (poison, "NaN or infinity in g_child.weight"),
        (narrow, "have the shapes"),
    ],
)
def test_bad_checkpoints(folder: Path, spoil: Callable[[Path], None], words: str) -> None:
    spoil(folder)
    with pytest.raises(ValueError, match=words) as raised:
        load_checkpoint(folder)
    assert "\n" not in str(raised.value)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a TDES checkpoint"):
        load_checkpoint(tmp_path / "nowhere")
