"""The worker on a GPU: what its attention can't do is refused, and graphs are used where asked for.

It has never been run on a GPU.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner

from graft_sglang.engine.graph_ladder import padded_tree
from graft_sglang.engine.round import Round
from graft_sglang.engine.verify_graphs import VerifyGraphs
from graft_sglang.engine.worker import GraftWorker

logger = logging.getLogger(__name__)


class GpuGraftWorker(GraftWorker):
    """``GraftWorker``, eager or with SGLang's decode graphs (``--cuda-graph-backend-decode full``).

    With graphs, a round's trees are padded to the next captured width.
    """

    _graphs: VerifyGraphs | None = None

    def alloc_memory_pool(self, *args: Any, **kwargs: Any) -> None:
        super().alloc_memory_pool(*args, **kwargs)
        runner = self.model_runner
        check_masks(
            self.max_width,
            int(runner.max_running_requests),
            int(runner.model_config.context_len),
            runner.sliding_window_size,
            flashinfer=runner.prefill_attention_backend_str == "flashinfer"
            or runner.decode_attention_backend_str == "flashinfer",
        )

    def _maybe_build_draft_sampler(self) -> None:
        """DFLASH's argmax inside the drafter's graph; ours needs the marginals instead."""

    def init_cuda_graphs(self) -> None:
        super().init_cuda_graphs()
        runner = self.model_runner
        if not isinstance(runner.decode_cuda_graph_runner, DecodeCudaGraphRunner):
            logger.info(
                "GRAFT: drafter and verify run eagerly; --cuda-graph-backend-decode full captures "
                "them, which has never been run on a GPU."
            )
            return
        self._graphs = VerifyGraphs(runner, self.max_width)
        self._graphs.capture(int(self.block_size))

    def _build_tree(self, current: Round) -> None:
        super()._build_tree(current)
        if self._graphs is not None:
            batch_size, columns = current.tree.token_ids.shape
            width = self._graphs.width_for(columns, batch_size)
            current.plan = dataclasses.replace(current.plan, tree=padded_tree(current.tree, width))

    def _verify(self, current: Round, grammar_barrier: Any) -> None:
        if self._graphs is None:
            super()._verify(current, grammar_barrier)
            return
        with self._graphs.bound(current.tree.token_ids.shape[1]):
            super()._verify(current, grammar_barrier)


def check_masks(
    max_width: int,
    requests: int,
    context_len: int,
    sliding_window: int | None,
    *,
    flashinfer: bool,
) -> None:
    """Whether the GPU's attention can apply every mask that may come.

    A sliding window counts keys by column there, but siblings stand at the same position; and
    FlashInfer pairs a window's clipped keys with the mask of all of them
    (``flashinfer_backend.py:2046``). FlashInfer also counts a batch's mask bits in 32 bits.

    Raises:
        ValueError: it can't.
    """
    if sliding_window is not None and sliding_window > 0:
        raise ValueError(
            f"GRAFT can't serve this target on a GPU: the attention backends don't apply a tree's "
            f"mask within its sliding window of {sliding_window} tokens."
        )
    bits = requests * max_width * (context_len + max_width)
    if flashinfer and bits >= 2**31:
        raise ValueError(
            f"The masks of {requests} trees of {max_width} nodes at a context of {context_len} "
            f"tokens have {bits} entries, more than FlashInfer can count: use --attention-backend "
            f"triton, or lower --max-running-requests, --context-length or --graft-max-budget."
        )
