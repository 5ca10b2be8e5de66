"""Which captured pair verifies a round, and that it is taken out again; nothing is captured."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner

from graft_sglang.contracts import DraftCandidates, EdgeScores
from graft_sglang.engine import gpu_worker, verify_graphs
from graft_sglang.engine.gpu_worker import GpuGraftWorker
from graft_sglang.engine.graph_ladder import GraphShape
from graft_sglang.engine.verify_graphs import GIB, VerifyGraphs
from graft_sglang.engine.worker import GraftWorker
from graft_sglang.tree.best_first import BestFirstTreeBuilder

MAX_WIDTH, BLOCK = 65, 12


class Graphs(DecodeCudaGraphRunner):
    """SGLang's graph runner without its graphs; takes the arguments of the real one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        bound = inspect.signature(DecodeCudaGraphRunner.__init__).bind(self, *args, **kwargs)
        self.width = bound.arguments["speculative_num_draft_tokens"]
        self.attention = bound.arguments["attn_backend"]
        self.max_bs = 4


class Runner:
    """What of ``ModelRunner`` is used; every new attention backend is a number."""

    device, gpu_id, decode_attention_backend_str, init_new_workspace = (
        "cuda",
        0,
        "flashinfer",
        False,
    )

    def __init__(self) -> None:
        self.attn_backend: Any = 0
        self.decode_cuda_graph_runner = Graphs(
            self, attn_backend=0, speculative_num_draft_tokens=MAX_WIDTH
        )
        self._backends = 0

    def _get_attention_backend(self, **kwargs: Any) -> int:
        inspect.signature(ModelRunner._get_attention_backend).bind(self, **kwargs)
        self.init_new_workspace = kwargs["init_new_workspace"]
        self._backends += 1
        return self._backends

    def _decode_cuda_graph_runner_cls(self) -> type:
        return Graphs


@dataclass
class Machine:
    """Free GPU memory, and the spec settings seen by what is captured."""

    free_gib: float = 100.0
    widths: tuple[int, ...] = ()

    @contextmanager
    def override(self, speculative_num_draft_tokens: int) -> Iterator[None]:
        self.widths += (speculative_num_draft_tokens,)
        yield


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    shape = GraphShape(requests=4, context_len=100_000, heads=8, head_dim=64, kv_splits=8)
    monkeypatch.setattr(verify_graphs, "get_spec", lambda: made)
    monkeypatch.setattr(verify_graphs, "get_available_gpu_memory", lambda *_: made.free_gib)
    monkeypatch.setattr(verify_graphs, "_shape", lambda runner, requests: shape)
    return made


def test_one_pair_a_width(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    runner = Runner()
    graphs = VerifyGraphs(runner, MAX_WIDTH)
    with caplog.at_level(logging.INFO):
        graphs.capture(BLOCK)
    assert machine.widths == (33, 17, 12)
    assert "graphs for 32 nodes took" in caplog.text
    seen = {}
    for width in (12, 17, 33, 65):
        with graphs.bound(width):
            captured = runner.decode_cuda_graph_runner
            assert captured.attention == runner.attn_backend
            seen[captured.width] = runner.attn_backend
    assert seen == {12: 3, 17: 2, 33: 1, 65: 0}
    assert (runner.attn_backend, runner.decode_cuda_graph_runner.width) == (0, MAX_WIDTH)


def test_the_first_pair_is_back_after_an_error(machine: Machine) -> None:
    runner = Runner()
    graphs = VerifyGraphs(runner, MAX_WIDTH)
    graphs.capture(BLOCK)
    with pytest.raises(KeyError), graphs.bound(17):
        raise KeyError
    assert (runner.attn_backend, runner.decode_cuda_graph_runner.width) == (0, MAX_WIDTH)


def test_batches_too_large_for_a_graph_keep_their_width(machine: Machine) -> None:
    runner = Runner()
    graphs = VerifyGraphs(runner, MAX_WIDTH)
    graphs.capture(BLOCK)
    assert [graphs.width_for(20, batch) for batch in (1, 4, 5)] == [33, 33, 20]
    with graphs.bound(20):  # of the pair in place, SGLang's can_run_graph says no
        assert runner.decode_cuda_graph_runner.width == MAX_WIDTH


def test_widths_without_memory_are_left_out(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """33 nodes need 4 * 33 * 100,000 * 5 bytes; the rest fits."""
    machine.free_gib = verify_graphs.SPARE_GIB + 4 * 32 * 100_000 * 5 / GIB
    graphs = VerifyGraphs(Runner(), MAX_WIDTH)
    graphs.capture(BLOCK)
    assert machine.widths == (17, 12)
    assert "no graphs for 32 nodes" in caplog.text
    assert graphs.width_for(18, 1) == MAX_WIDTH


def worker(runner: Any) -> GpuGraftWorker:
    made = object.__new__(GpuGraftWorker)
    made._target_worker = SimpleNamespace()
    made.model_runner, made.max_width, made.block_size = runner, MAX_WIDTH, BLOCK
    return made


def a_round() -> Any:
    log_probs = torch.randn(2, 5, 8).log_softmax(-1).sort(descending=True).values
    ids = torch.arange(8).expand(2, 5, 8).contiguous()
    candidates = DraftCandidates(
        torch.zeros(2, dtype=torch.int64), ids, log_probs, torch.zeros(2, 4)
    )
    tree = BestFirstTreeBuilder().build(
        candidates, EdgeScores(log_probs[:, :, None]), torch.tensor([20, 3])
    )
    return SimpleNamespace(tree=tree)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The round's stages that a GPU's worker wraps; ``verify`` notes what is in place then."""
    noted: dict[str, Any] = {}

    @dataclass(frozen=True)
    class Plan:
        tree: Any

    class Round:
        plan = Plan(a_round().tree)

        @property
        def tree(self) -> Any:
            return self.plan.tree

    def verify(self: Any, current: Any, barrier: Any) -> None:
        noted["nodes"] = current.tree.token_ids.shape[1]
        noted["captured"] = getattr(self.model_runner.decode_cuda_graph_runner, "width", None)

    monkeypatch.setattr(gpu_worker.GraftWorker, "init_cuda_graphs", lambda self: None)
    monkeypatch.setattr(GraftWorker, "_build_tree", lambda self, current: None)
    monkeypatch.setattr(GraftWorker, "_verify", verify)
    noted["round"] = Round()
    return noted


def test_a_round_is_padded_and_verified_with_its_widths_graphs(
    machine: Machine, seen: dict[str, Any]
) -> None:
    made = worker(Runner())
    made.init_cuda_graphs()
    made._build_tree(seen["round"])
    made._verify(seen["round"], None)
    assert (seen["nodes"], seen["captured"]) == (33, 33)


def test_without_graphs_a_round_stays_as_it_is(
    seen: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    made = worker(SimpleNamespace(decode_cuda_graph_runner=None))
    with caplog.at_level(logging.INFO):
        made.init_cuda_graphs()
    assert caplog.text.count("run eagerly") == 1
    made._build_tree(seen["round"])
    made._verify(seen["round"], None)
    assert (seen["nodes"], seen["captured"]) == (21, None)


def test_the_stages_that_are_wrapped_exist() -> None:
    for name in ("_build_tree", "_verify", "init_cuda_graphs", "_maybe_build_draft_sampler"):
        ours, theirs = (inspect.signature(getattr(c, name)) for c in (GpuGraftWorker, GraftWorker))
        assert list(ours.parameters) == list(theirs.parameters), name
