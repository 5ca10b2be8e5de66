"""Every scorer and policy that we ship, served: the target's own text, and trees that differ."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from prompts import prompts
from server import FLOAT32, GRAFT, SABA, TDES, Pool, Server, ids

METHODS = {
    "tdes + saba": (
        "--graft-tdes-path", TDES, "--graft-saba-path", SABA, "--enable-metrics",
        "--decode-log-interval", "8",
    ),
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


def test_nodes_tokens_and_stages_are_exported_and_logged(pool: Pool) -> None:
    server = pool.get(*FLOAT32, *GRAFT, *METHODS["tdes + saba"])
    before = _exported(server)
    answers = server.outputs(prompts()[:4], 4, tokens=TOKENS)
    after = _exported(server)
    rounds = sum(answer["meta_info"]["spec_verify_ct"] for answer in answers)
    # Overlap scheduling begins one more round of a request that has just ended.
    counted = after["graft:nodes_count"] - before["graft:nodes_count"]
    assert rounds <= counted <= rounds + len(answers)
    committed = after["graft:committed_tokens_total"] - before["graft:committed_tokens_total"]
    assert counted <= committed <= 12 * counted
    for stage in ("draft", "candidates", "budget", "build", "verify", "accept", "commit"):
        name = f'graft:stage_seconds_total{{stage="{stage}"}}'
        assert after[name] > before[name]
    assert "GRAFT: nodes a round " in server.log()


def _exported(server: Server) -> dict[str, float]:
    """Prometheus samples of our own, by name; those of a process are told apart no further."""
    text = requests.get(server.url + "/metrics", timeout=30).text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("graft:")]
    return {name: float(value) for name, value in lines}
