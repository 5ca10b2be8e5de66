"""Compilation where the installation can't be written to, and before the first request."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from numba.core.caching import CacheImpl
from oracle import ddtree_case

from graft_sglang import signals
from graft_sglang.contracts import EdgeScores
from graft_sglang.signals import decoding_state
from graft_sglang.token_pairs import TokenPairScores
from graft_sglang.tree import arrays, best_first
from graft_sglang.tree.acceptance import _walk, accept_paths
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.jit import inlined, jit
from graft_sglang.tree.masks import numba_backend
from graft_sglang.tree.masks.numba_backend import full_mask
from graft_sglang.tree.warmup import warm_up

LOCAL = """
from graft_sglang_jit import inlined, jit

@inlined
def helper(number):
    return number + 1

@jit
def kernel(number):
    return helper(number) * 2

assert kernel(20) == 42
print(type(kernel._cache).__name__)
"""


def run_elsewhere(tmp_path: Path, writable: bool) -> str:
    """Run a kernel from a copy of jit.py beside a __pycache__ that is a folder, or a file."""
    source = Path(best_first.__file__).with_name("jit.py")
    shutil.copy(source, tmp_path / "graft_sglang_jit.py")
    (tmp_path / "kernels.py").write_text(LOCAL)
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    if not writable:
        (tmp_path / "__pycache__").write_text("not a folder")
        environment |= {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}
    done = subprocess.run(
        [sys.executable, "-c", "import kernels"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_place_that_can_be_written_is_used(tmp_path) -> None:
    assert run_elsewhere(tmp_path, writable=True) == "FunctionCache"
    assert list((tmp_path / "__pycache__").glob("kernels.kernel*.nbi"))


def test_no_place_to_write_to_is_no_fault(tmp_path) -> None:
    assert run_elsewhere(tmp_path, writable=False) == "NullCache"


def test_without_any_cache_the_function_still_runs(monkeypatch) -> None:
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert jit(lambda number: number + 1)(1) == 2
    assert inlined(lambda number: number + 1)(1) == 2


def test_a_round_after_the_warm_up_compiles_nothing() -> None:
    """One specialisation a kernel, whatever the batch, layouts, budgets and scores."""
    warm_up(BestFirstTreeBuilder())
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 5, 30, generator=generator)
    case = ddtree_case(logits, 8, 100).rows(torch.arange(0, 6, 2))
    values = torch.randn(3, 8, 5, 8, generator=generator).transpose(1, 2)
    for scores in (case.scores, EdgeScores(values)):
        for caps in (None, torch.tensor([1, 0, 9])):
            budgets = torch.tensor([[7, 1], [0, 1], [100, 1]])[:, 0]
            tree = BestFirstTreeBuilder().build(case.candidates, scores, budgets, caps)
            widths = torch.full((3,), 101, dtype=torch.int32)
            full_mask(tree, budgets, widths, torch.empty(10**5, dtype=torch.bool))
            accept_paths(tree, torch.zeros(tree.token_ids.shape[::-1], dtype=torch.int64).T)
    pairs = TokenPairScores(
        case.candidates, torch.randn(30, 8), torch.randn(5, 4), scale=0.5, normalized=True
    )
    BestFirstTreeBuilder().build(case.candidates, pairs, budgets)
    decoding_state(case.candidates, case.scores, torch.ones(3), budgets)
    kernels = (
        arrays._check,
        best_first._grow_batch,
        numba_backend._total,
        numba_backend._expand,
        signals._read,
        _walk,
    )
    assert [len(kernel.signatures) for kernel in kernels] == [1] * len(kernels)
