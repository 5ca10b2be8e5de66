"""On a GPU, as far as SGLang decides it without one: attention that reads masks, graphs or none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from server import GRAFT, TARGET, environment

from graft_sglang.doctor.process import write_stand_in
from graft_sglang.engine.gpu_verify import preferred_backend
from graft_sglang.engine.gpu_worker import check_masks

FULL = ("--cuda-graph-backend-decode", "full")
HEADS_OF_32 = ("--model-path", TARGET, *GRAFT)


@pytest.fixture(scope="module")
def decisions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of a machine that says it has a Hopper GPU."""
    heads_of_128 = write_stand_in(tmp_path_factory.mktemp("pair"))
    small_drafter = write_stand_in(tmp_path_factory.mktemp("small"))
    config = Path(small_drafter[-1]) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"head_dim": 32}))
    cases = {
        "default": heads_of_128,
        "float32": [*heads_of_128, "--dtype", "float32"],
        "triton": [*heads_of_128, "--attention-backend", "triton"],
        "fa3": [*heads_of_128, "--attention-backend", "fa3"],
        "fa3 for decode": [*heads_of_128, "--decode-attention-backend", "fa3"],
        "graphs": [*heads_of_128, *FULL],
        "other graphs": [*heads_of_128, "--cuda-graph-backend-decode", "breakable"],
        "heads of 32": HEADS_OF_32,
        "heads of 32, flashinfer": [*HEADS_OF_32, "--attention-backend", "flashinfer"],
        "drafter's heads of 32": small_drafter,
        "drafter's heads of 32, flashinfer": [
            *small_drafter, "--speculative-draft-attention-backend", "flashinfer"
        ],
        "DFLASH": [word.replace("GRAFT", "DFLASH") for word in heads_of_128],
    }  # fmt: skip
    folder = Path(__file__).parent
    run = subprocess.run(
        [sys.executable, str(folder / "as_on_a_gpu.py"), json.dumps(cases)],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("case", "target", "drafter", "graphs"),
    [
        ("default", "flashinfer", None, "disabled"),
        ("float32", "triton", None, "disabled"),
        ("triton", "triton", None, "disabled"),
        ("graphs", "flashinfer", None, "full"),
        ("other graphs", "flashinfer", None, "disabled"),
        ("heads of 32", "triton", None, "disabled"),
        ("drafter's heads of 32", "flashinfer", "triton", "disabled"),
    ],
)
def test_what_serves(
    decisions: dict[str, Any], case: str, target: str, drafter: str | None, graphs: str
) -> None:
    expected = {"target": target, "drafter": drafter, "graphs": graphs}
    assert decisions["resolved"][case] == expected


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("fa3", "reads tree masks (flashinfer or triton), not fa3"),
        ("fa3 for decode", "reads tree masks (flashinfer or triton), not fa3"),
        ("heads of 32, flashinfer", "FlashInfer can't serve this target's heads of 32"),
        ("drafter's heads of 32, flashinfer", "FlashInfer can't serve this drafter's heads of 32"),
    ],
)
def test_what_is_refused(decisions: dict[str, Any], case: str, words: str) -> None:
    assert words in decisions["resolved"][case]["error"]


def test_other_algorithms_keep_sglangs_choice(decisions: dict[str, Any]) -> None:
    """Also shows that the machine was taken for one with a Hopper GPU."""
    chosen = decisions["resolved"]["DFLASH"]
    assert (chosen["target"], chosen["graphs"]) == ("fa3", "full")


def test_only_the_captured_width_is_replayed(decisions: dict[str, Any]) -> None:
    """SGLang's own decision: anything else runs eagerly."""
    expected = {(17, 1): True, (17, 4): True, (17, 5): False, (16, 1): False, (33, 1): False}
    assert {(w, n): seen for w, n, seen in decisions["replays"]} == expected


def test_trees_are_captured_with_a_mask(decisions: dict[str, Any]) -> None:
    assert decisions["masks"] == {"GRAFT": "the mask", "DFLASH": None}


@pytest.mark.parametrize(
    ("head_dim", "dtype", "backend"),
    [
        (64, torch.bfloat16, "flashinfer"),
        (128, "auto", "flashinfer"),
        (128, "float", "triton"),
        (128, torch.float32, "triton"),
        (80, torch.float16, "triton"),
    ],
)
def test_flashinfer_where_its_kernels_serve(
    head_dim: int, dtype: torch.dtype | str, backend: str
) -> None:
    assert preferred_backend(head_dim, dtype) == backend


def test_masks_that_attention_cant_apply_are_refused() -> None:
    check_masks(257, 48, 131_072, None, flashinfer=True)
    check_masks(1025, 48, 131_072, -1, flashinfer=False)
    with pytest.raises(ValueError, match="sliding window of 4096 tokens"):
        check_masks(65, 1, 4096, 4096, flashinfer=False)
    with pytest.raises(ValueError, match="triton, or lower --max-running-requests"):
        check_masks(1025, 48, 131_072, None, flashinfer=True)
