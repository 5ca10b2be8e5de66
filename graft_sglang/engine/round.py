"""One decoding round of a batch, filled in stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from graft_sglang.contracts import DraftCandidates, DraftTree
from graft_sglang.engine.window import Window
from graft_sglang.planning import Plan
from graft_sglang.stages import StageClock
from graft_sglang.tree.acceptance import AcceptedPaths


@dataclass(slots=True)
class Round:
    """What the stages hand on; later fields are set by later stages."""

    batch: Any
    """SGLang's ``ScheduleBatch``."""
    host_lens: torch.Tensor
    """int64 [bs] on the CPU: committed prefix lengths."""
    clock: StageClock = field(default_factory=StageClock)
    block: Window = field(init=False)
    """The drafter's slots."""
    candidates: DraftCandidates = field(init=False)
    plan: Plan = field(init=False)
    window: Window = field(init=False)
    """The tree's slots."""
    output: Any = field(init=False)
    """SGLang's ``GenerationBatchResult`` of the target's forward."""
    logits: torch.Tensor = field(init=False)
    """[bs * width, V], adjusted and masked."""
    target_tokens: torch.Tensor = field(init=False)
    """int64 [bs, width] on the CPU; at a temperature -1 at nodes that the walk did not reach."""
    accepted: AcceptedPaths = field(init=False)

    @property
    def tree(self) -> DraftTree:
        """The plan's trees."""
        return self.plan.tree

    @property
    def request_ids(self) -> list[str]:
        """Ids of the batch's requests, in its order."""
        return [req.rid for req in self.batch.reqs]


def depth_caps(
    reqs: list[Any], host_lens: torch.Tensor, context_len: int, deepest: int
) -> torch.Tensor:
    """Deepest node of use, int64 [bs]: what may still be generated, bonus token excluded."""
    caps = []
    for req, prefix in zip(reqs, host_lens.tolist(), strict=True):
        generated = prefix + 1 - len(req.origin_input_ids)
        remaining = req.sampling_params.max_new_tokens - generated
        caps.append(min(remaining - 1, context_len - 2 - prefix))
    return torch.tensor(caps, dtype=torch.int64).clamp(0, deepest)
