"""What our verify hands to SGLang's Triton backend gives every node its ancestor chain's logits.

The backend's preparation and its kernel are SGLang's own, run by Triton's interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EQUAL, UNEQUAL = 1e-5, 1e-2
"""The kernel computes in float32, the chains in float64."""


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    folder = Path(__file__).parent
    run = subprocess.run(
        [sys.executable, str(folder / "interpreted_verify.py")],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("how", ["eager", "captured"])
def test_nodes_see_their_ancestor_chains(
    errors: dict[str, float], how: str, page_size: int
) -> None:
    """Captured: filled up with two requests, in buffers with another batch's mask and slots."""
    assert errors[f"{how}, page {page_size}"] < EQUAL


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("what", ["wrong bit", "no mask"])
def test_a_wrong_mask_would_show(errors: dict[str, float], what: str, page_size: int) -> None:
    assert errors[f"{what}, page {page_size}"] > UNEQUAL
