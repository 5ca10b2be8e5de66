"""Where the tiny pair comes from and how good it is, as ``provenance.json``."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean

import torch
import transformers
from transformers import AutoTokenizer

from examples.dflash_training.train import LoopConfig

from .documents import Texts
from .measure import measure
from .target import load_target

COMMAND = "python -m examples.tiny_pair.train --corpus CORPUS --runs RUNS"
DATA = {
    "GSM8K (train split)": "MIT; openai/grade-school-math",
    "MATH (train split, numeric answers)": "MIT; hendrycks/math",
    "MBPP (without the 128 evaluation tasks)": "CC-BY-4.0; Google Research, Austin et al. 2021",
    "HumanEval (36 problems outside the evaluation rows)": "MIT; openai/human-eval",
    "Self-Instruct seed and user-oriented tasks": "Apache-2.0; yizhongw/self-instruct",
    "Python standard library sources": "PSF-2.0; Python Software Foundation",
}


def cpu_model() -> str:
    """The processor's name, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()


def last_loss(path: Path, window: int = 20) -> float | None:
    """Mean training loss of the last steps of a stored log."""
    if not path.exists():
        return None
    losses = [entry["loss"] for entry in json.loads(path.read_text()) if "loss" in entry]
    return round(mean(losses[-window:]), 4)


def write_provenance(
    pair: Path, texts: Texts, runs: Path, target_loop: LoopConfig, drafter_loop: LoopConfig
) -> None:
    """Measure the saved pair and write ``provenance.json`` beside it."""
    target = load_target(pair / "target")
    tokenizer = AutoTokenizer.from_pretrained(pair / "target")
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "command": COMMAND,
        "hardware": cpu_model(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "data": DATA,
        "target": {
            "loop": asdict(target_loop),
            "parameters": sum(p.numel() for p in target.parameters()),
            "final_training_loss": last_loss(runs / "target.json"),
        },
        "drafter": {
            "loop": asdict(drafter_loop),
            "final_training_loss": last_loss(runs / "drafter.json"),
        },
        "figures": measure(target, tokenizer, pair / "drafter", texts, target_loop.seed),
    }
    (pair / "provenance.json").write_text(json.dumps(document, indent=2) + "\n")
