"""Reads a target's input embedding from its files, without loading the model."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

_NAMES = (
    "model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "embed_tokens.weight",
    "transformer.wte.weight",
    "wte.weight",
)


def read_input_embedding(target: Path | str) -> torch.Tensor:
    """The input embedding [V, E] in the type it is stored in, cut to the configured vocabulary.

    Args:
        target: a folder, or a hub name, whose safetensors are then downloaded as SGLang would.

    Raises:
        ValueError: it has no safetensors, or none with an embedding of a known name.
    """
    place = Path(target).expanduser()
    if not place.is_dir():
        from huggingface_hub import snapshot_download

        place = Path(snapshot_download(str(target), allow_patterns=["*.json", "*.safetensors"]))
    files = _files_by_name(place)
    name = next((name for name in _NAMES if name in files), None)
    if name is None:
        raise ValueError(
            f"'{target}' has no input embedding in safetensors: looked for {', '.join(_NAMES)}."
        )
    try:
        with safe_open(str(files[name]), "pt") as stored:
            embedding = stored.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"'{files[name]}' is truncated or damaged: {error}.") from error
    return embedding[: _vocabulary(place, len(embedding))]


def _files_by_name(place: Path) -> dict[str, Path]:
    index = place / "model.safetensors.index.json"
    if index.is_file():
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {name: place / file for name, file in weight_map.items()}
    files: dict[str, Path] = {}
    for path in sorted(place.glob("*.safetensors")):
        try:
            with safe_open(str(path), "pt") as stored:
                files.update(dict.fromkeys(stored.keys(), path))
        except (SafetensorError, OSError) as error:
            raise ValueError(f"'{path}' is truncated or damaged: {error}.") from error
    return files


def _vocabulary(place: Path, stored: int) -> int:
    """``vocab_size`` of ``config.json``, also of a nested text model; else what is stored."""
    path = place / "config.json"
    if not path.is_file():
        return stored
    config = json.loads(path.read_text(encoding="utf-8"))
    return config.get("vocab_size") or config.get("text_config", {}).get("vocab_size") or stored
