"""Captured target verifies: an (attention backend, graph runner) pair for each of a few widths.

A graph runner replays one width, and FlashInfer's captured wrappers are kept by batch size alone:
two widths can't share a backend. SGLang's own workers build such pairs and put them in place around
a forward: ``speculative/eagle_worker_v2.py:1799`` (one for each number of draft tokens) and
``speculative/uno_worker_v2.py:792``. Written from reading these: it has never been run on a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sglang.srt.runtime_context import get_exec, get_spec
from sglang.srt.utils import get_available_gpu_memory

from graft_sglang.engine.graph_ladder import GraphShape, buffer_bytes, ladder, snapped

logger = logging.getLogger(__name__)

GIB = 2**30
SPARE_GIB = 1.0
"""GPU memory that capturing leaves alone, as SGLang's DFlash worker does for its own graph."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What verifies one width."""

    attention: Any
    graphs: Any
    """SGLang's ``DecodeCudaGraphRunner``."""


class VerifyGraphs:
    """The captured widths of a target.

    Args:
        runner: the target's ``ModelRunner``; its own graphs are of ``max_width``.
    """

    def __init__(self, runner: Any, max_width: int) -> None:
        self._runner = runner
        self._pairs = {max_width: Captured(runner.attn_backend, runner.decode_cuda_graph_runner)}
        self._widths: tuple[int, ...] = (max_width,)
        self._max_batch = int(runner.decode_cuda_graph_runner.max_bs)

    def capture(self, block_size: int) -> None:
        """Capture the rest of the ladder, wider ones first, while memory lasts; says what it took.

        A width left out costs no more than the next wider one's time.
        """
        runner, backend = self._runner, self._runner.decode_attention_backend_str
        shape = _shape(runner, self._max_batch)
        for width in reversed(ladder(block_size, self._widths[-1])[:-1]):
            before = get_available_gpu_memory(runner.device, runner.gpu_id)
            expected = buffer_bytes(backend, width, shape) / GIB
            if before - expected < SPARE_GIB:
                logger.warning(
                    "GRAFT: no graphs for %d nodes: they need more than %.2f GiB, %.2f are free; "
                    "lower --cuda-graph-max-bs-decode or --context-length.",
                    width - 1, expected, before,
                )  # fmt: skip
                continue
            self._pairs[width] = _capture(runner, width)
            self._widths = tuple(sorted(self._pairs))
            after = get_available_gpu_memory(runner.device, runner.gpu_id)
            logger.info(
                "GRAFT: graphs for %d nodes took %.2f GiB (%.2f of them buffers).",
                width - 1, before - after, expected,
            )  # fmt: skip

    def width_for(self, width: int, batch_size: int) -> int:
        """The width to verify at: a captured one, or ``width`` where the batch runs eagerly."""
        return width if batch_size > self._max_batch else snapped(width, self._widths)

    @contextmanager
    def bound(self, width: int) -> Iterator[None]:
        """Put a width's pair in place; SGLang runs a width without one eagerly."""
        runner = self._runner
        pair = self._pairs.get(width, self._pairs[self._widths[-1]])
        kept = runner.attn_backend, runner.decode_cuda_graph_runner
        runner.attn_backend, runner.decode_cuda_graph_runner = pair.attention, pair.graphs
        try:
            yield
        finally:
            runner.attn_backend, runner.decode_cuda_graph_runner = kept


def _capture(runner: Any, width: int) -> Captured:
    """Build a backend and capture the graphs of one width.

    The workspace is shared with the target's other wrappers: it holds one kernel's partial results,
    and all run on one stream.
    """
    kept = runner.init_new_workspace
    try:
        with get_spec().override(speculative_num_draft_tokens=width):
            attention = runner._get_attention_backend(init_new_workspace=False)
            graphs = runner._decode_cuda_graph_runner_cls()(
                runner,
                attn_backend=attention,
                speculative_num_steps=1,
                speculative_num_draft_tokens=width,
            )
    finally:
        runner.init_new_workspace = kept
    return Captured(attention, graphs)


def _shape(runner: Any, requests: int) -> GraphShape:
    from sglang.srt.runtime_context import get_parallel

    config = runner.model_config
    return GraphShape(
        requests=requests,
        context_len=int(config.context_len),
        heads=int(config.get_max_num_attention_heads()) // int(get_parallel().attn_tp_size),
        head_dim=int(config.head_dim),
        kv_splits=int(get_exec().kernel.triton_attention_num_kv_splits),
    )
