"""Linear layers from a kept layout, and the threads they and everything else run on."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from prompts import prompts
from safetensors.torch import load_file, save_file
from server import FLOAT32, GRAFT, TARGET, Server, ids
from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
from torch.nn.functional import linear

from graft_sglang.engine import cpu_linear, cpu_threads
from graft_sglang.engine.cpu_linear import packed_linear


def parameter(*shape: int, dtype: torch.dtype = torch.float32) -> torch.nn.Parameter:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(*shape, generator=generator).to(dtype)
    return torch.nn.Parameter(weight, requires_grad=False)


@pytest.mark.parametrize("shape", [(1, 96), (2, 96), (17, 96), (65, 96), (3, 5, 96), (0, 96)])
@pytest.mark.parametrize("biased", [False, True])
def test_equals_torch(shape: tuple[int, ...], biased: bool) -> None:
    weight, rows = parameter(130, 96), torch.randn(*shape)
    bias = torch.randn(130) if biased else None
    with torch.inference_mode():
        found = packed_linear(rows, weight, bias)
    assert found.shape == (*shape[:-1], 130)
    torch.testing.assert_close(found, linear(rows, weight, bias), rtol=1e-4, atol=1e-4)


def test_strided_rows() -> None:
    weight, rows = parameter(130, 96), torch.randn(96, 17).T
    torch.testing.assert_close(packed_linear(rows, weight), linear(rows, weight))


@pytest.mark.parametrize(
    "weight", [parameter(40, 96, dtype=torch.bfloat16), parameter(80, 96)[:40]]
)
def test_other_weights_are_left_alone(weight: torch.Tensor) -> None:
    rows = torch.randn(5, 96, dtype=weight.dtype)
    assert packed_linear(rows, weight).equal(linear(rows, weight))
    assert not hasattr(weight, "graft_layout")


def test_a_layout_is_made_once_and_anew_after_an_update() -> None:
    weight, rows = parameter(130, 96), torch.randn(9, 96)
    packed_linear(rows, weight)
    layout = weight.graft_layout
    packed_linear(rows, weight)
    assert weight.graft_layout is layout
    weight.data.mul_(2)
    cpu_linear._forget_layouts(None)
    torch.testing.assert_close(packed_linear(rows, weight), linear(rows, weight))


def test_every_way_of_updating_weights_is_hooked() -> None:
    """Any method of SGLang's updater that writes weights, but for those that call a hooked one."""
    public = {
        name
        for name, _ in inspect.getmembers(WeightUpdater, inspect.isfunction)
        if not name.startswith("_") and ("weight" in name or "update" in name)
    }
    reads = {
        "init_weights_update_group",
        "destroy_weights_update_group",
        "receive_weights_from_distributed",
        "begin_weight_update",
    }
    assert public - reads == set(cpu_linear._UPDATES)


def test_small_forwards_run_on_one_thread_and_products_on_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(cpu_threads, "_cores", 3)
    torch.set_num_threads(3)
    seen: list[int] = []

    def forward(runner: object, forward_batch: object) -> str:
        seen.append(torch.get_num_threads())
        with cpu_threads.all_cores():
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())
        return "output"

    try:
        for tokens in (17, cpu_threads.SMALL_FORWARD + 1):
            batch = SimpleNamespace(input_ids=torch.zeros(tokens))
            assert cpu_threads._forward(forward, None, batch) == "output"
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 3, 1, 3, 3, 3]


@pytest.mark.parametrize(("setting", "threads"), [("2", 2), ("", None), ("many", None)])
def test_the_users_number_of_threads_stays(
    monkeypatch: pytest.MonkeyPatch, setting: str, threads: int | None
) -> None:
    import os

    before = torch.get_num_threads(), cpu_threads._cores
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    try:
        cpu_threads.use_cores()
        assert torch.get_num_threads() == (threads or len(os.sched_getaffinity(0)))
    finally:
        torch.set_num_threads(before[0])
        cpu_threads._cores = before[1]


def test_a_server_uses_updated_weights(tmp_path: Path) -> None:
    """After an update from disk a tree is verified with the new weights, not a kept layout."""
    changed = tmp_path / "target"
    shutil.copytree(TARGET, changed)
    weights = load_file(changed / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    for name, weight in weights.items():
        if "mlp" in name:
            noise = torch.randn(weight.shape, generator=generator).to(weight.dtype)
            weights[name] = weight + 0.3 * weight.std() * noise
    save_file(weights, changed / "model.safetensors", metadata={"format": "pt"})
    asked = prompts()[:4]
    server = Server(*FLOAT32, *GRAFT, "--graft-budget", "16")
    fresh = None
    try:
        before = ids(server.outputs(asked, 4, tokens=24))
        reply = server.post("/update_weights_from_disk", {"model_path": str(changed)})
        assert reply.json()["success"], reply.text
        after = ids(server.outputs(asked, 4, tokens=24))
        server.kill()
        fresh = Server(*FLOAT32, "--model-path", str(changed))
        expected = ids(fresh.outputs(asked, 4, tokens=24))
    finally:
        server.kill()
        if fresh is not None:
            fresh.kill()
    assert after == expected != before
