"""The doctor's self-test on the tiny pair, with each attention backend, eager and with graphs.

It holds greedy text, the tokens at the nodes of random trees, and the chain's accepted tokens
against the same target without speculation: exactly in float32, in 16 bits (FlashInfer knows
nothing else) but for near-ties. Triton multiplies float32 as TF32 unless told not to.
"""

from __future__ import annotations

import pytest
from server import DRAFTER, TARGET
from widened_pair import widen

from graft_sglang.doctor.findings import Report, Status
from graft_sglang.doctor.selftest import self_test
from graft_sglang.doctor.servers import Pair

START_LIMIT_S = 600
FULL = ("--cuda-graph-backend-decode", "full", "--cuda-graph-max-bs-decode", "8")


@pytest.fixture(scope="module")
def heads_of_64(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return widen(tmp_path_factory.mktemp("wide"))


@pytest.mark.parametrize("page_size", ["1", "16"])
@pytest.mark.parametrize("graphs", [(), FULL], ids=["eager", "graphs"])
@pytest.mark.parametrize(
    ("backend", "dtype"), [("flashinfer", "float16"), ("triton", "float32"), ("triton", "bfloat16")]
)
def test_trees_change_no_answer(
    heads_of_64: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    dtype: str,
    graphs: tuple[str, ...],
    page_size: str,
) -> None:
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    target, drafter = heads_of_64 if backend == "flashinfer" else (TARGET, DRAFTER)
    flags = ("--attention-backend", backend, "--page-size", page_size, *graphs)
    report = Report(print)
    self_test(Pair(target, drafter, dtype, "cuda", flags), report, START_LIMIT_S)
    failed = [finding.text for finding in report.findings if finding.status is Status.FAIL]
    assert not failed
    checked = {finding.check for finding in report.findings}
    assert {"random trees against ancestor chains", "identity, your settings"} <= checked


def test_the_tiny_pairs_heads_are_refused_by_flashinfer() -> None:
    """A start would not fail by itself: FlashInfer reads beyond the memory."""
    report = Report(print)
    flags = ("--attention-backend", "flashinfer")
    self_test(Pair(TARGET, DRAFTER, "float16", "cuda", flags), report, START_LIMIT_S)
    assert "heads of 32" in "".join(finding.text for finding in report.findings)
