"""Threads of a server on the CPU: every core for large products, one for everything small.

Sharing out a small operation takes longer than the operation, and a decoding forward has a
thousand of them between its products.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

SMALL_FORWARD = 512
"""Tokens up to which a forward's operations other than products are small."""

SPIN_COUNT = "10000"
"""About as long as the operations between two products take. A thread that spins on, libgomp's
default, takes the core from the server's other processes; one that sleeps at once is late."""

_cores = 1


def prepare_environment() -> None:
    """For the processes started from here on; the user's own settings stay."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)


def use_cores() -> None:
    """Count this process's cores; ``OMP_NUM_THREADS`` decides where it is set."""
    global _cores
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    _cores = int(wanted) if wanted.isdigit() else len(os.sched_getaffinity(0))
    torch.set_num_threads(_cores)


def install() -> None:
    """Register the hook; only on our CPU platform."""
    HookRegistry.register(
        "sglang.srt.model_executor.model_runner.ModelRunner.forward",
        _forward,
        HookType.AROUND,
    )


@contextmanager
def all_cores() -> Iterator[None]:
    """Every core for torch's operations inside; takes a microsecond."""
    before = torch.get_num_threads()
    torch.set_num_threads(_cores)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _forward(original: Any, runner: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
    tokens = forward_batch.input_ids
    if tokens is None or len(tokens) > SMALL_FORWARD:
        return original(runner, forward_batch, *args, **kwargs)
    torch.set_num_threads(1)
    try:
        return original(runner, forward_batch, *args, **kwargs)
    finally:
        torch.set_num_threads(_cores)
