"""The Triton kernels: equal to the host's under the interpreter, and compilable for a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graft_sglang.tree.best_first_triton import TritonTreeBuilder, _grow, _mark_ancestors
from graft_sglang.tree.masks.triton_backend import _full, _packed

TREES = 500
COMPUTE_CAPABILITY = 90

GROW = {
    "root": "*i64", "token_ids": "*i64", "values": "*fp32", "limits": "*i64", "batch_size": "i32",
    "out_tokens": "*i64", "out_parents": "*i32", "out_depths": "*i32", "out_scores": "*fp64",
    "out_first_child": "*i32", "out_next_sibling": "*i32", "width": "i32", "depth": "i32",
    "parents_a_level": "i32", "k": "i32",
}  # fmt: skip
MARK = {"parents": "*i32", "limits": "*i64", "ancestors": "*i64", "width": "i32", "words": "i32"}
MASK = {
    "ancestors": "*i64", "num_nodes": "*i32", "prefix_lens": "*i64", "columns": "i32",
    "words": "i32",
}  # fmt: skip
KERNELS = {
    "grow 64 x 32": (_grow, GROW, {"NODES": 64, "CHILDREN": 32}),
    "grow, one parent a level": (_grow, GROW, {"NODES": 64, "CHILDREN": 32, "parents_a_level": 1}),
    "grow, everything 1": (
        _grow,
        GROW,
        {"NODES": 1, "CHILDREN": 1, "parents_a_level": 1, "k": 1, "width": 1, "batch_size": 1},
    ),
    "grow, the largest": (_grow, GROW, {"NODES": 2048, "CHILDREN": 64}),
    "ancestors": (_mark_ancestors, MARK, {"WORDS": 2}),
    "full mask": (_full, MASK | {"starts": "*i64", "out": "*i1"}, {"BLOCK": 256}),
    "packed mask": (_packed, MASK | {"starts": "*i32", "out": "*u8"}, {"BLOCK": 256}),
}


def test_trees_and_masks_equal_the_hosts_under_the_interpreter() -> None:
    folder = Path(__file__).parent
    run = subprocess.run(
        [sys.executable, str(folder / "interpreted_kernels.py"), str(TREES)],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.split() == [str(TREES)]


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles_for_a_gpu(name: str) -> None:
    """To machine code, with Triton's own assembler: no GPU is needed for that."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel, signature, constants = KERNELS[name]
    signature = {k: v for k, v in signature.items() if k not in constants}
    source = ASTSource(
        kernel,
        signature | dict.fromkeys(constants, "constexpr"),
        {(kernel.arg_names.index(name),): value for name, value in constants.items()},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", COMPUTE_CAPABILITY, 32))
    assert len(compiled.asm["cubin"]) > 0


def test_the_builder_says_that_it_needs_a_gpu() -> None:
    with pytest.raises(ValueError, match="needs a GPU: use 'best_first' on the CPU"):
        TritonTreeBuilder(torch.device("cpu"))
