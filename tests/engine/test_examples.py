"""The examples run against a real server and print what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from prompts import prompts
from server import FLOAT32, GRAFT, Pool, Server, environment, ids, mat

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, server: Server) -> str:
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / name), "--url", server.url],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=180,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def custom(pool: Pool) -> Server:
    flags = ("--graft-import", "custom_scorer", "--graft-edge-scorer", "no_repeats")
    return pool.get(*FLOAT32, *GRAFT, *flags, PYTHONPATH=str(EXAMPLES))


def test_quickstart(custom: Server) -> None:
    statistics = re.search(
        r"accept length ([\d.]+), nodes a round ([\d.]+)", run("quickstart.py", custom)
    )
    assert statistics
    assert float(statistics[1]) > 1
    assert 1 < float(statistics[2]) <= 64


def test_frontend_language(custom: Server) -> None:
    output = run("frontend_language.py", custom)
    assert re.search(r"rating: [0-9]$", output.strip())
    assert "In favour: " in output
    assert "Against: " in output


def test_custom_scorer_is_lossless(custom: Server, reference: Server) -> None:
    answers = custom.generate(prompts()[:8], 48)
    assert ids(answers) == ids(reference.generate(prompts()[:8], 48))
    assert mat(answers) > 1.2
