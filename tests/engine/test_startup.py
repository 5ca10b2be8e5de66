"""Bad input at start-up: one clear sentence and an exit code that is not 0."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from server import BASE, DRAFTER, GRAFT, TARGET, environment

ALGORITHM = GRAFT[:2]


RESOLVE = """
import json, sys
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.server_args import prepare_server_args
sentences = []
for arguments in json.load(sys.stdin):
    try:
        prepare_server_args(arguments).resolve_once()
        sentences.append(None)
    except Exception as error:
        sentences.append(str(error))
print(json.dumps(sentences))
"""


def resolve(cases: list[tuple[str, ...]]) -> list[str | None]:
    """What ``launch_server`` says to each set of arguments before it loads a model."""
    result = subprocess.run(
        [sys.executable, "-c", RESOLVE],
        input=json.dumps([["--model-path", TARGET, *case] for case in cases]),
        capture_output=True,
        text=True,
        env=environment(),
        timeout=300,
        check=True,
    )
    return json.loads(result.stdout.splitlines()[-1])


def edited_drafter(folder: Path, **changes: Any) -> str:
    shutil.copytree(DRAFTER, folder / "drafter")
    path = folder / "drafter" / "config.json"
    config = json.loads(path.read_text())
    for name, value in changes.items():
        (config["dflash_config"] if name in config["dflash_config"] else config)[name] = value
    path.write_text(json.dumps(config))
    return str(folder / "drafter")


BAD_SETTINGS = {
    "give its path with --speculative-draft-model-path": ALGORITHM,
    "doesn't exist": (*ALGORITHM, "--speculative-draft-model-path", "/no/such/drafter"),
    "budget must be a whole number from 1 to 1024, not 0": (*GRAFT, "--graft-budget", "0"),
    "budget must be a whole number from 1 to 1024, not -3": (*GRAFT, "--graft-budget", "-3"),
    "budget must be a whole number from 1 to 1024, not 5000": (*GRAFT, "--graft-budget", "5000"),
    "asks for up to 64 nodes": (*GRAFT, "--graft-budget", "64", "--graft-max-budget", "16"),
    "Unknown edge scorer 'nope'; known names: ": (*GRAFT, "--graft-edge-scorer", "nope"),
    "Unknown budget policy 'nope'; known names: ": (*GRAFT, "--graft-budget-policy", "nope"),
    "Unknown tree builder 'nope'; known names: ": (*GRAFT, "--graft-tree-builder", "nope"),
    "no_such_module can't be imported": (*GRAFT, "--graft-import", "no_such_module"),
    "unknown settings bugdet": (*GRAFT, "--graft-config", '{"bugdet": 3}'),
    "does not serve mixed prefill and decode": (*GRAFT, "--enable-mixed-chunk"),
    "speculation needs --tp-size 1": (*GRAFT, "--tp-size", "2"),
    "--attention-backend must be graft_cpu": (*GRAFT, "--attention-backend", "triton"),
    "means a largest budget of 7": (
        *GRAFT, "--speculative-num-draft-tokens", "8", "--graft-max-budget", "64"
    ),
}  # fmt: skip

BAD_DRAFTERS: dict[str, dict[str, Any]] = {
    "its vocabulary is 777": {"vocab_size": 777},
    "its hidden size is 64": {"hidden_size": 64},
    "a target of 30 layers": {"num_target_layers": 30},
    "was made for another target": {"target_layer_ids": [1, 40]},
    "mask token 100000 is outside the vocabulary": {"mask_token_id": 100_000},
    "not a DFlash drafter": {"architectures": ["Qwen3ForCausalLM"]},
    "block_size must be from 2": {"block_size": 1},
}


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """The sentence for each case, all resolved in one process."""
    cases = dict(BAD_SETTINGS)
    for words, changes in BAD_DRAFTERS.items():
        path = edited_drafter(tmp_path_factory.mktemp("pair"), **changes)
        cases[words] = (*ALGORITHM, "--speculative-draft-model-path", path)
    cases["good"] = (*GRAFT, "--graft-budget", "16")
    cases["good, --device cpu"] = (*GRAFT, "--device", "cpu")
    return dict(zip(cases, resolve(list(cases.values())), strict=True))


@pytest.mark.parametrize("words", [*BAD_SETTINGS, *BAD_DRAFTERS])
def test_one_clear_sentence(sentences: dict[str, str | None], words: str) -> None:
    sentence = sentences[words]
    assert sentence is not None
    assert words in sentence
    assert "\n" not in sentence.strip()


@pytest.mark.parametrize("case", ["good", "good, --device cpu"])
def test_good_settings_pass(sentences: dict[str, str | None], case: str) -> None:
    assert sentences[case] is None


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
