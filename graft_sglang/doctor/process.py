"""What a process that SGLang spawns sees: our plugin, the platform, the resolved arguments.

SGLang starts its scheduler, detokenizer and data-parallel controller by ``spawn`` and loads the
plugins first thing in each. Here one such process does the same and resolves a server's arguments,
without loading a model.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from graft_sglang.doctor.findings import Finding, fail, ok, warn
from graft_sglang.doctor.logs import useful_lines
from graft_sglang.reference.config import DrafterConfig

LIMIT_S = 300.0
SETTINGS = (
    "device", "attention_backend", "speculative_draft_attention_backend", "sampling_backend",
    "page_size", "speculative_num_draft_tokens", "speculative_dflash_block_size",
)  # fmt: skip
"""Arguments that SGLang resolves and the report names."""


@dataclass(frozen=True, slots=True)
class View:
    """What the process saw; empty strings where it didn't get so far."""

    registered: bool = False
    """Whether SGLang knows the algorithm GRAFT."""
    platform: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    """The resolved arguments of ``SETTINGS``."""
    error: str = ""
    log: str = ""


def look(arguments: Sequence[str], limit_s: float = LIMIT_S) -> View:
    """Spawn a process that loads SGLang's plugins and resolves these server arguments.

    Args:
        arguments: as for ``launch_server``.
        limit_s: seconds after which the process is ended and counts as failed.
    """
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile(prefix="graft-doctor-", suffix=".log") as log:
        process = spawn.Process(target=_see, args=(list(arguments), log.name, there))
        process.start()
        there.close()
        try:
            values = here.recv() if here.poll(limit_s) else {"error": f"no answer in {limit_s:g} s"}
        except EOFError:
            process.join()
            values = {"error": f"the process ended with exit code {process.exitcode}"}
        finally:
            process.kill()
            process.join()
        return View(**values, log=Path(log.name).read_text(errors="replace"))


def _see(arguments: list[str], log: str, connection: Connection) -> None:
    """In the spawned process; everything printed goes to the log."""
    with open(log, "w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    values: dict[str, Any] = {}
    try:
        from sglang.srt.plugins import load_plugins

        load_plugins()
        from sglang.srt.platforms import current_platform
        from sglang.srt.speculative.spec_registry import get_spec

        kind = type(current_platform)
        values["platform"] = f"{kind.__module__}.{kind.__qualname__}"
        values["registered"] = get_spec("GRAFT") is not None
        if values["registered"]:
            from sglang.srt.server_args import prepare_server_args

            server_args = prepare_server_args(arguments)
            server_args.resolve_once()
            resolved = server_args.resolved_dict()
            values["settings"] = {name: resolved.get(name) for name in SETTINGS}
    except BaseException as error:  # also SystemExit, by which arguments are refused
        values["error"] = f"{type(error).__name__}: {error}"
    connection.send(values)


def check_plugin(view: View) -> list[Finding]:
    """Whether the plugin was loaded there, and on which platform."""
    check = "plugin in a spawned process"
    if not view.registered:
        said = "; ".join([view.error or "SGLang does not know GRAFT", *useful_lines(view.log)])
        return [fail(check, said, "Mend what the log names; entry points and variables first.")]
    return [ok(check, "loaded, SGLang knows GRAFT"), ok("platform", view.platform)]


def check_settings(view: View, own_pair: bool) -> Finding:
    """What SGLang makes of the arguments.

    Args:
        own_pair: the user's models; else a stand-in, whose refusal says less.
    """
    check = "server arguments" if own_pair else "backends"
    if not view.error:
        chosen = {name: value for name, value in view.settings.items() if value is not None}
        return ok(check, ", ".join(f"{k} {v}" for k, v in chosen.items()), **chosen)
    said = "; ".join([view.error, *useful_lines(view.log)])
    if own_pair:
        return fail(check, said, "Mend what it names: a server would end with the same words.")
    return warn(check, said, "Name your models with --model and --draft-model to look further.")


def write_stand_in(folder: Path) -> list[str]:
    """Two configurations without weights, for SGLang to choose backends by; the server flags."""
    sizes: dict[str, Any] = {
        "vocab_size": 32_000, "hidden_size": 1024, "intermediate_size": 2048,
        "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 128,
        "rope_theta": 10_000.0, "rms_norm_eps": 1e-6, "max_position_embeddings": 4096,
    }  # fmt: skip
    drafter = DrafterConfig(
        **sizes, num_hidden_layers=2, block_size=16, num_target_layers=8,
        target_layer_ids=(1, 3, 5), mask_token_id=3,
    ).to_hf()  # fmt: skip
    target = {k: v for k, v in drafter.items() if k != "dflash_config"} | {
        "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 8,
        "layer_types": ["full_attention"] * 8,
    }  # fmt: skip
    for name, document in (("target", target), ("drafter", drafter)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(document), encoding="utf-8")
    return [
        "--model-path", str(folder / "target"), "--speculative-algorithm", "GRAFT",
        "--speculative-draft-model-path", str(folder / "drafter"),
    ]  # fmt: skip
