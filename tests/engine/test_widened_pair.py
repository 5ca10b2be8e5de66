"""The pair with wider heads, made for the tests on a GPU, says what the tiny pair says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from server import DRAFTER, TARGET
from transformers import AutoModelForCausalLM
from widened_pair import WIDE, widen

from graft_sglang.reference.drafter import load_drafter

TOKENS = torch.randint(4, 2000, (2, 24), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return widen(tmp_path_factory.mktemp("wide"))


def test_the_target_says_the_same(wide: tuple[str, str]) -> None:
    logits = []
    for path in (TARGET, wide[0]):
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        with torch.no_grad():
            logits.append(model(TOKENS).logits)
    assert model.config.head_dim == WIDE
    torch.testing.assert_close(logits[1], logits[0], rtol=0, atol=1e-3)
    assert torch.equal(logits[1].argmax(-1), logits[0].argmax(-1))


def test_the_drafter_says_the_same(wide: tuple[str, str]) -> None:
    generator = torch.Generator().manual_seed(1)
    outputs = []
    for path in (DRAFTER, wide[1]):
        drafter = load_drafter(Path(path))
        cfg = drafter.cfg
        features = torch.randn(
            1, 30, len(cfg.target_layer_ids) * cfg.hidden_size, generator=generator.manual_seed(1)
        )
        block = torch.randn(1, 2, cfg.block_size, cfg.hidden_size, generator=generator)
        with torch.no_grad():
            outputs.append(drafter(features, block, torch.tensor([[0, 25]])))
    assert cfg.head_dim == WIDE
    torch.testing.assert_close(outputs[1], outputs[0], rtol=0, atol=1e-3)
