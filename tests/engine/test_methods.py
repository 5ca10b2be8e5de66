"""Every scorer and policy that we ship, served: the target's own text, and trees that differ."""

from __future__ import annotations

from typing import Any

import pytest
from prompts import prompts
from server import FLOAT32, GRAFT, SABA, TDES, Pool, Server, ids

METHODS = {
    "tdes + saba": ("--graft-tdes-path", TDES, "--graft-saba-path", SABA),
    "tdes_normalized + saba_table": (
        "--graft-edge-scorer", "tdes_normalized", "--graft-tdes-path", TDES, "--graft-beta", "1",
        "--graft-budget-policy", "saba_table", "--graft-saba-path", SABA,
    ),
    "ddtree + expected_throughput": ("--graft-budget-policy", "expected_throughput"),
}  # fmt: skip
TOKENS = 64


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_lossless(pool: Pool, reference: Server, method: str) -> None:
    """Greedy identity alone and in a batch, with budgets that change every round and request."""
    expected = ids(reference.outputs(prompts(), 8, tokens=TOKENS))
    server = pool.get(*FLOAT32, *GRAFT, *METHODS[method])
    answers: list[Any] = []
    for batch in (1, 8):
        answers = server.outputs(prompts(), batch, tokens=TOKENS)
        assert ids(answers) == expected
    budgets = {answer["meta_info"]["spec_cap_length"] for answer in answers}
    assert len(budgets) > 1, "the policy never changed its mind"
