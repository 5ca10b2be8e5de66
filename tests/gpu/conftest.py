"""Tests that need a CUDA GPU: ``pytest -m gpu``. Without one they are skipped, and say so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

for folder in ("tree", "engine"):
    sys.path.append(str(Path(__file__).resolve().parents[1] / folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        item.add_marker(pytest.mark.gpu)
        if not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU; torch sees none"))
