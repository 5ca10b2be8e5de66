"""Greedy output is token-identical to the same target without speculation, in float32."""

from __future__ import annotations

from typing import Any

import pytest
from prompts import prompts
from server import DFLASH, FLOAT32, Pool, Server, ids, mat, rounds

TOKENS = 96


@pytest.fixture(scope="module")
def expected(reference: Server) -> list[list[int]]:
    return ids(reference.outputs(prompts(), 8, tokens=TOKENS))


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("budget", [1, 7, 16, 63, 200])
def test_identical_with_overlap_scheduling(
    graft: Server, script: Any, expected: list[list[int]], budget: int, batch: int
) -> None:
    script.budgets(budget)
    answers = graft.outputs(prompts(), batch, tokens=TOKENS)
    assert ids(answers) == expected
    assert mat(answers) > 1.2


def test_budgets_that_change_every_round_and_request(
    graft: Server, script: Any, expected: list[list[int]]
) -> None:
    script.budgets(1, 7, 63)
    assert ids(graft.outputs(prompts(), 8, tokens=TOKENS)) == expected


def test_a_larger_tree_accepts_more(graft: Server, script: Any) -> None:
    lengths = []
    for budget in (1, 16, 200):
        script.budgets(budget)
        lengths.append(mat(graft.outputs(prompts()[:8], 8, tokens=TOKENS)))
    assert lengths[0] < lengths[1] < lengths[2]


def test_chain_builder_equals_dflash(
    start: Any, pool: Pool, script: Any, expected: list[list[int]]
) -> None:
    script.budgets(63)
    answers = start("--graft-tree-builder", "chain").outputs(prompts(), 8, tokens=TOKENS)
    assert ids(answers) == expected
    baseline = pool.get(*FLOAT32, *DFLASH).outputs(prompts(), 8, tokens=TOKENS)
    assert ids(baseline) == expected
    # Rounds, not accepted tokens: DFLASH also counts those beyond max_new_tokens.
    assert rounds(answers) == rounds(baseline)


@pytest.mark.parametrize("budget", [7, 63])
def test_identical_without_overlap_scheduling(
    start: Any, script: Any, expected: list[list[int]], budget: int
) -> None:
    script.budgets(budget)
    server = start("--disable-overlap-schedule")
    assert ids(server.outputs(prompts(), 8, tokens=TOKENS)) == expected
    assert ids(server.outputs(prompts()[:4], 1, tokens=TOKENS)) == expected[:4]


def test_identical_to_a_plain_transformers_loop(expected: list[list[int]]) -> None:
    import torch
    from server import TARGET
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32).eval()
    stops = set(model.generation_config.eos_token_id)
    for prompt, output in zip(prompts()[:6], expected[:6], strict=True):
        own: list[int] = []
        while len(own) < TOKENS and not stops & set(own):
            with torch.no_grad():
                own.append(int(model(torch.tensor([prompt + own])).logits[0, -1].argmax()))
        assert own == output


def test_bfloat16_serves(pool: Pool) -> None:
    """Near-ties may resolve differently in bfloat16; the text must still be the target's own."""
    from server import GRAFT

    plain = pool.get("--dtype", "bfloat16").outputs(prompts(), 8, tokens=32)
    trees = pool.get("--dtype", "bfloat16", *GRAFT, "--graft-budget", "16").outputs(
        prompts(), 8, tokens=32
    )
    same = sum(a == b for a, b in zip(ids(plain), ids(trees), strict=True))
    assert same >= len(prompts()) // 2
    assert mat(trees) > 1.2
