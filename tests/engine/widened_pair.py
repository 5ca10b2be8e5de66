"""The tiny pair with heads of 64 instead of 32, saying the same: FlashInfer takes no smaller ones.

A head's new places hold zeros. Rotary pairs are spread so that each keeps its frequency: pair ``i``
of 16 turns like pair ``2 i`` of 32. The zeros halve a head's mean square, so normed queries and
keys come out sqrt(2) larger each, while attention's scale is sqrt(2) smaller: the keys' norm is
divided by the sqrt(2) that is left over.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from server import PAIR

HEAD, WIDE = 32, 64
_PAIRS = 2 * torch.arange(HEAD // 2)
ROTARY = torch.cat((_PAIRS, _PAIRS + WIDE // 2))
"""Where each place of a query's or key's head goes."""


def widen(folder: Path) -> tuple[str, str]:
    """Write target and drafter, in float32, into ``folder``; their paths."""
    paths = []
    for name in ("target", "drafter"):
        shutil.copytree(PAIR / name, folder / name)
        _widen_model(folder / name)
        paths.append(str(folder / name))
    return paths[0], paths[1]


def _widen_model(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"head_dim": WIDE}))
    weights = folder / "model.safetensors"
    save_file(
        {name: _widened(name, value.float()) for name, value in load_file(weights).items()},
        weights,
        metadata={"format": "pt"},
    )


def _widened(name: str, value: torch.Tensor) -> torch.Tensor:
    part = name.split(".")[-2]
    if part in ("q_norm", "k_norm"):
        wide = torch.zeros(WIDE)
        wide[ROTARY] = value
        return wide / 2**0.5 if part == "k_norm" else wide
    if part in ("q_proj", "k_proj", "v_proj"):
        wide = torch.zeros(len(value) // HEAD, WIDE, value.shape[1])
        places = torch.arange(HEAD) if part == "v_proj" else ROTARY
        wide[:, places] = value.view(-1, HEAD, value.shape[1])
        return wide.flatten(0, 1)
    if part == "o_proj":
        return torch.nn.functional.pad(value.view(len(value), -1, HEAD), (0, WIDE - HEAD)).flatten(
            1
        )
    return value
