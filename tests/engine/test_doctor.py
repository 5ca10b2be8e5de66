"""``graft-sglang doctor`` on the tiny pair: what a user runs first on a new machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from server import DRAFTER, TARGET, environment


def doctor(folder: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, output and JSON document."""
    document = folder / "doctor.json"
    result = subprocess.run(
        [sys.executable, "-m", "graft_sglang.cli", "doctor", "--json", str(document), *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=900,
        check=False,
    )
    output = result.stdout + result.stderr
    return result.returncode, output, json.loads(document.read_text())


def test_a_good_pair_passes(tmp_path: Path) -> None:
    """Four real servers: identity, the target's tokens at random nodes, drafter, overhead."""
    code, output, document = doctor(
        tmp_path, "--model", TARGET, "--draft-model", DRAFTER, "--device", "cpu",
        "--dtype", "float32", "--", "--mem-fraction-static", "0.3", "--max-total-tokens", "20000",
    )  # fmt: skip
    assert code == 0, output
    found = {finding["check"]: finding for finding in document["findings"]}
    assert not [name for name, finding in found.items() if finding["status"] == "FAIL"]
    for label in ("your settings", "random trees", "chain"):
        assert f"server, {label}" in found
    assert any("identity" in name for name in found)


def test_another_targets_drafter_is_diagnosed(tmp_path: Path) -> None:
    code, output, document = doctor(
        tmp_path, "--model", TARGET, "--draft-model", TARGET, "--device", "cpu"
    )
    assert code == 1
    failed = [finding for finding in document["findings"] if finding["status"] == "FAIL"]
    assert failed
    assert all(finding["advice"] for finding in failed), failed
    assert "FAIL" in output
