"""Turns verified rounds into trace records; on only with ``--graft-trace-dir``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from graft_sglang.engine.round import Round
from graft_sglang.fingerprint import fingerprint_embedding
from graft_sglang.traces import TraceMeta, TraceWriter
from graft_sglang.traces.record import RoundRecord

CAPACITY = 4096
"""Requests whose round numbers are remembered; the one idle longest is forgotten first."""


class RoundRecorder:
    """Copies what a record needs of each request's round and hands it to the writer's thread.

    With overlap scheduling a request's last record may be of a round past its end: it was begun
    before the end was known.
    """

    def __init__(self, put: Callable[[RoundRecord], None]) -> None:
        self._put = put
        self._rounds: OrderedDict[str, int] = OrderedDict()

    @classmethod
    def to_folder(
        cls, folder: str, drafter: str, depth: int, candidates: int, embedding: torch.Tensor
    ) -> RoundRecorder:
        """Record into ``folder``, for the target with this input embedding [V, E].

        Raises:
            ValueError: the folder can't be written, or holds rounds of another target, D or K.
        """
        meta = TraceMeta(
            target_fingerprint=fingerprint_embedding(embedding),
            depth=depth,
            candidates=candidates,
            drafter=Path(drafter).name,
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
        )
        return cls(TraceWriter(folder, meta).put)

    def record(self, current: Round) -> None:
        """Record the round of every request of the batch, once its commit has ended."""
        candidates, tree = current.candidates, current.tree
        token_ids = candidates.token_ids.to("cpu", torch.int32).numpy()
        log_probs = candidates.log_probs.to("cpu", torch.float32).numpy()
        roots = candidates.root.tolist()
        batch_size, width = tree.token_ids.shape
        depth = token_ids.shape[1]
        logits = current.logits.view(batch_size, width, -1)
        info = current.batch.sampling_info
        greedy = [True] * batch_size if info.is_all_greedy else (info.top_ks <= 1).tolist()
        for row, request_id in enumerate(current.request_ids):
            nodes = int(tree.num_nodes[row])
            path = current.accepted.nodes[row, : int(current.accepted.committed[row])]
            asked = path[:depth]
            levels = candidates.token_ids[row, : len(asked)].to(logits.device)
            target_logits = logits[row, asked.to(logits.device)].gather(1, levels)
            self._put(
                RoundRecord(
                    request_id=request_id,
                    round_index=self._next(request_id),
                    greedy=greedy[row],
                    prefix_len=int(current.host_lens[row]),
                    batch_size=batch_size,
                    root=roots[row],
                    token_ids=token_ids[row],
                    log_probs=log_probs[row],
                    tree_tokens=_int32(tree.token_ids[row, :nodes]),
                    tree_parents=_int32(tree.parents[row, :nodes]),
                    target_tokens=_int32(current.target_tokens[row, :nodes]),
                    accepted=_int32(path),
                    target_logits=target_logits.to("cpu", torch.float32).numpy(),
                    confidence=float(current.plan.state.confidence[row]),
                    degeneration=float(current.plan.state.degeneration[row]),
                    history=float(current.plan.state.history[row]),
                    budget=int(current.plan.budgets[row]),
                    stage_seconds=current.clock.seconds,
                )
            )

    def _next(self, request_id: str) -> int:
        number = self._rounds.pop(request_id, -1) + 1
        self._rounds[request_id] = number
        if len(self._rounds) > CAPACITY:
            self._rounds.popitem(last=False)
        return number


def _int32(values: torch.Tensor) -> np.ndarray:
    """A copy: the tree's memory is used again while the writer's thread still holds a record."""
    return values.to(torch.int32, copy=True).numpy()
