"""A trained drafter is saved in the public DFlash layout, which SGLang loads unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from graft_sglang.reference.drafter import DFlashDrafter


def save_drafter(drafter: DFlashDrafter, folder: Path) -> None:
    """Write ``config.json`` and bfloat16 ``model.safetensors``."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in drafter.state_dict().items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(drafter.cfg.to_hf(), indent=2) + "\n")
