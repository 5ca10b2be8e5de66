"""A TDES checkpoint: a directory with the weights (safetensors) and what they were made for."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from graft_sglang.fingerprint import fingerprint_embedding
from graft_sglang.scorers.tdes.model import TDESModel

FORMAT_VERSION = 1
WEIGHTS_FILE = "tdes.safetensors"
INFO_FILE = "tdes.json"


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """``tdes.json``: what the weights fit, and how they came about."""

    target_fingerprint: str
    vocab_size: int
    """V"""
    hidden_size: int
    """E"""
    depth: int
    """D"""
    candidates: int
    """K of the traces: C_{p,d} had this many tokens."""
    width: int
    """m"""
    data: dict[str, Any] = field(default_factory=dict)
    """Prompts and rounds of each part, tasks, seed of the split."""
    losses: list[dict[str, float]] = field(default_factory=list)
    """One entry an epoch."""
    chosen_epoch: int = 0
    command: str = ""
    format_version: int = FORMAT_VERSION


def save_checkpoint(folder: Path | str, model: TDESModel, info: CheckpointInfo) -> None:
    """Write both files; the folder is made if need be."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.float().contiguous() for name, value in model.state_dict().items()}
    save_file(tensors, str(place / WEIGHTS_FILE))
    text = json.dumps(asdict(info), indent=2) + "\n"
    (place / INFO_FILE).write_text(text, encoding="utf-8")


def load_checkpoint(folder: Path | str) -> tuple[TDESModel, CheckpointInfo]:
    """Read a checkpoint on the CPU, in float32.

    Raises:
        ValueError: a file is missing, truncated or of another version, or the weights don't have
            the shapes that ``tdes.json`` says or are not finite; one sentence.
    """
    place = Path(folder)
    for name in (INFO_FILE, WEIGHTS_FILE):
        if not (place / name).is_file():
            raise ValueError(
                f"'{folder}' is not a TDES checkpoint: it has no {name} (graft-sglang train-tdes "
                f"makes one)."
            )
    info = _read_info(place / INFO_FILE)
    try:
        tensors = load_file(str(place / WEIGHTS_FILE))
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(
            f"The TDES weights '{place / WEIGHTS_FILE}' are truncated or damaged: {error}."
        ) from error
    model = TDESModel(info.hidden_size, info.depth, info.width)
    expected = {name: list(value.shape) for name, value in model.state_dict().items()}
    found = {name: list(value.shape) for name, value in tensors.items()}
    if expected != found:
        raise ValueError(
            f"The TDES weights '{place / WEIGHTS_FILE}' have the shapes {found}, but {INFO_FILE} "
            f"says {expected}."
        )
    for name, value in tensors.items():
        if not torch.isfinite(value).all():
            raise ValueError(
                f"The TDES weights '{place / WEIGHTS_FILE}' hold NaN or infinity in {name}."
            )
    model.load_state_dict(tensors)
    return model.eval().requires_grad_(False), info


def check_target(info: CheckpointInfo, embedding: torch.Tensor, source: Path | str) -> None:
    """See that a checkpoint was made for the target with this input embedding.

    Args:
        embedding: floating point [V, E].
        source: the checkpoint's folder, for the message.

    Raises:
        ValueError: another vocabulary, hidden size or target; one sentence.
    """
    vocabulary, hidden = embedding.shape
    if vocabulary != info.vocab_size:
        raise ValueError(
            f"The TDES checkpoint '{source}' was made for a vocabulary of {info.vocab_size} "
            f"tokens, but this target has {vocabulary}."
        )
    if hidden != info.hidden_size:
        raise ValueError(
            f"The TDES checkpoint '{source}' was made for embeddings of {info.hidden_size} "
            f"numbers, but this target has {hidden}."
        )
    if fingerprint_embedding(embedding) != info.target_fingerprint:
        raise ValueError(
            f"The TDES checkpoint '{source}' was made for another target of the same size; train "
            f"one for this target with graft-sglang train-tdes."
        )


def _read_info(path: Path) -> CheckpointInfo:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"'{path}' is truncated or not JSON: {error}.") from error
    version = values.get("format_version") if isinstance(values, dict) else None
    if version != FORMAT_VERSION:
        raise ValueError(
            f"'{path}' has TDES format version {version}; this installation reads version "
            f"{FORMAT_VERSION}."
        )
    names = {entry.name for entry in fields(CheckpointInfo)}
    if set(values) != names:
        raise ValueError(f"'{path}' must hold exactly the fields {', '.join(sorted(names))}.")
    for name in ("vocab_size", "hidden_size", "depth", "candidates", "width"):
        if not isinstance(values[name], int) or values[name] < 1:
            raise ValueError(f"'{path}' must give {name} as a positive whole number.")
    return CheckpointInfo(**values)
