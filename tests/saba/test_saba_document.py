"""The fitted file: what is written is read; what can't be used is refused in one sentence."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from saba_cases import context, document

from graft_sglang.budgeters.saba.document import load
from graft_sglang.budgeters.saba.policy import SabaPolicy
from graft_sglang.budgeters.saba.table import SabaTablePolicy
from graft_sglang.fingerprint import fingerprint_embedding
from graft_sglang.hardware import describe


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "saba.json"
    document(hardware=describe(torch.device("cpu"))).save(file)
    return file


def edit(path, **changes) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_what_is_saved_is_loaded(path) -> None:
    saved, loaded = document(hardware=describe(torch.device("cpu"))), load(path)
    assert loaded._as_json() == saved._as_json()
    assert loaded.gain_table.values.dtype == np.float64


def test_a_missing_file(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"none\.json' doesn't exist; make one with"):
        load(tmp_path / "none.json")


@pytest.mark.parametrize("text", ["", "{", '{"format": "graft-saba", "ver', "\x00\xff"])
def test_a_corrupt_file(path, text) -> None:
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match="is not valid JSON"):
        load(path)


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": "tdes", "version": 1}'])
def test_a_foreign_file(path, text) -> None:
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a SABA file"):
        load(path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": 2}, "has version 2"),
        ({"phi": [-1.0, 0.0, -1.0]}, r"phi \. s is -3 on the mean state and must be positive"),
        ({"phi": [0.0, 0.0, 0.0]}, "must be positive"),
        ({"phi": [float("nan"), 1.0, 1.0]}, "phi or the mean state is not a number"),
        ({"phi": [1.0, 2.0]}, "not enough values"),
        ({"cost": [0.01, float("nan"), 0.0]}, "a cost parameter is not a number"),
        ({"cost": [-1.0, 0.0, 0.0]}, "a cost on the grid is not a positive number"),
        ({"grid": []}, "its grid must rise"),
        ({"grid": [0]}, "no budget but 0"),
        ({"grid": [8, 4]}, "its grid must rise"),
        ({"grid": [4, 4000]}, "its grid must rise"),
        ({"depth": "six"}, "is wrong"),
        ({"cost_table": {"budgets": [1, 2], "prefix_lens": [1]}}, "lacks 'seconds'"),
        (
            {"cost_table": {"budgets": [1, 2], "prefix_lens": [1], "seconds": [[1, None]]}},
            "should be",
        ),
        (
            {"cost_table": {"budgets": [2, 1], "prefix_lens": [1], "seconds": [[1, 1]]}},
            "does not rise",
        ),
        ({"gain_table": {"weights": 3}}, "lacks 'centres'"),
        ({"calibration": {"budgets": [1], "coefficients": [[1, 2]]}}, "should be"),
        ({"target": None, "calibration": None}, "is wrong"),
    ],
)
def test_values_that_no_policy_can_work_with(path, changes, says) -> None:
    edit(path, **changes)
    with pytest.raises(ValueError, match=says) as caught:
        SabaPolicy.from_context(context(saba_path=str(path)))
    message = str(caught.value)
    assert str(path) in message
    assert "fit-saba" in message
    assert "\n" not in message


def test_a_lacking_field(path) -> None:
    values = json.loads(path.read_text())
    del values["phi"]
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="lacks 'phi'"):
        load(path)


def test_a_file_for_another_drafter_or_target_is_refused(path) -> None:
    edit(path, depth=15)
    with pytest.raises(ValueError, match="a drafter of 15 depths, but this one has 6"):
        SabaPolicy.from_context(context(saba_path=str(path)))
    ours, theirs = torch.ones(50, 4), torch.zeros(50, 4)
    edit(path, depth=6, target_fingerprint=fingerprint_embedding(ours))
    served = replace(context(saba_path=str(path)), target_embedding=lambda: theirs)
    with pytest.raises(ValueError, match="fitted for another target"):
        SabaPolicy.from_context(served)
    SabaPolicy.from_context(replace(served, target_embedding=lambda: ours))


def test_other_hardware_is_warned_about_and_saba_then_corrects_itself(path, caplog) -> None:
    given = context(saba_path=str(path))
    with caplog.at_level(logging.WARNING):
        assert SabaPolicy.from_context(given)._cost_correction is None
    assert not caplog.records
    edit(path, hardware="an abacus")
    with caplog.at_level(logging.WARNING):
        assert SabaPolicy.from_context(given)._cost_correction is not None
    assert "measured on 'an abacus'" in caplog.text


@pytest.mark.parametrize("online", [True, False])
def test_the_correction_can_be_switched(path, online) -> None:
    given = context(saba_path=str(path), saba_online=online)
    for make in (SabaPolicy, SabaTablePolicy):
        assert (make.from_context(given)._cost_correction is not None) == online


def test_another_scorer_than_the_fits_is_warned_about(path, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        SabaTablePolicy.from_context(context(saba_path=str(path), edge_scorer="tdes"))
    assert "fitted with the edge scorer 'ddtree', this server uses 'tdes'" in caplog.text
