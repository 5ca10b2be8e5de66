"""Bad input at start-up: one clear sentence and an exit code that is not 0."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from server import BASE, DRAFTER, GRAFT, environment

ALGORITHM = GRAFT[:2]


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Resolve the server arguments as ``launch_server`` does, without loading a model."""
    code = (
        "import sys; from sglang.srt.plugins import load_plugins; load_plugins();"
        "from sglang.srt.server_args import prepare_server_args as prepare;"
        "prepare(sys.argv[1:]).resolve_once()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *BASE, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
        check=False,
    )


def edited_drafter(folder: Path, **changes: Any) -> str:
    shutil.copytree(DRAFTER, folder / "drafter")
    path = folder / "drafter" / "config.json"
    config = json.loads(path.read_text())
    for name, value in changes.items():
        (config["dflash_config"] if name in config["dflash_config"] else config)[name] = value
    path.write_text(json.dumps(config))
    return str(folder / "drafter")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (ALGORITHM, "give its path with --speculative-draft-model-path"),
        ((*ALGORITHM, "--speculative-draft-model-path", "/no/such/drafter"), "doesn't exist"),
        ((*GRAFT, "--graft-budget", "0"), "budget must be a whole number from 1 to 1024"),
        ((*GRAFT, "--graft-budget", "-3"), "budget must be a whole number from 1 to 1024"),
        ((*GRAFT, "--graft-budget", "5000"), "budget must be a whole number from 1 to 1024"),
        ((*GRAFT, "--graft-budget", "64", "--graft-max-budget", "16"), "asks for up to 64 nodes"),
        ((*GRAFT, "--graft-edge-scorer", "nope"), "Unknown edge scorer 'nope'; known names:"),
        ((*GRAFT, "--graft-budget-policy", "nope"), "Unknown budget policy 'nope'; known names:"),
        ((*GRAFT, "--graft-tree-builder", "nope"), "Unknown tree builder 'nope'; known names:"),
        ((*GRAFT, "--graft-import", "no_such_module"), "no_such_module can't be imported"),
        ((*GRAFT, "--graft-config", '{"bugdet": 3}'), "unknown settings bugdet"),
        ((*GRAFT, "--enable-mixed-chunk"), "--enable-mixed-chunk"),
        ((*GRAFT, "--tp-size", "2"), "--tp-size 1"),
    ],
    ids=lambda value: value[-40:] if isinstance(value, str) else "",
)
def test_settings(arguments: tuple[str, ...], words: str) -> None:
    result = check(*arguments)
    assert result.returncode != 0
    assert words in result.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": 777}, "its vocabulary is 777"),
        ({"hidden_size": 64}, "its hidden size is 64"),
        ({"num_target_layers": 30}, "a target of 30 layers"),
        ({"target_layer_ids": [1, 40]}, "was made for another target"),
        ({"mask_token_id": 100_000}, "mask token 100000 is outside the vocabulary"),
        ({"architectures": ["Qwen3ForCausalLM"]}, "not a DFlash drafter"),
        ({"block_size": 1}, "block_size must be from 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_drafter_of_another_target(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = edited_drafter(tmp_path, **changes)
    result = check(*ALGORITHM, "--speculative-draft-model-path", path)
    assert result.returncode != 0
    assert words in result.stderr.strip().splitlines()[-1]


def test_good_settings_pass() -> None:
    result = check(*GRAFT, "--graft-budget", "16")
    assert result.returncode == 0, result.stderr


def test_launch_server_exits_with_the_sentence() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "sglang.launch_server", *BASE, *GRAFT, "--graft-budget", "0"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
        check=False,
    )
    assert result.returncode != 0
    assert "budget must be a whole number from 1 to 1024, not 0" in result.stderr


def test_unsupported_sglang_version(monkeypatch: pytest.MonkeyPatch) -> None:
    from graft_sglang.engine import plugin

    monkeypatch.setattr(plugin, "version", lambda name: "0.6.0")
    monkeypatch.setattr(sys, "argv", ["launch_server", "--speculative-algorithm", "GRAFT"])
    with pytest.raises(SystemExit, match=r"tested with SGLang 0\.5\.23 only, but 0\.6\.0"):
        plugin.register()
    monkeypatch.setattr(sys, "argv", ["launch_server"])
    with pytest.raises(plugin.UnsupportedSGLang):
        plugin.register()


def test_double_load_changes_nothing() -> None:
    code = (
        "from graft_sglang.engine.plugin import register; register(); register();"
        "from sglang.srt.speculative.spec_info import SpeculativeAlgorithm as S;"
        "assert S.from_string('graft').name == 'GRAFT'"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
