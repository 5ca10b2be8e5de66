"""Compiling the kernels before the first request needs them."""

from __future__ import annotations

import torch

from graft_sglang.contracts import DraftCandidates, EdgeScores, TreeBuilder
from graft_sglang.signals import decoding_state
from graft_sglang.transfer import candidates_on
from graft_sglang.tree.acceptance import accept_paths
from graft_sglang.tree.masks.numba_backend import full_mask


def warm_up(builder: TreeBuilder) -> None:
    """Run a toy round through ``builder``, the masks and the walk.

    Numba compiles a kernel on its first call: several seconds in all, one where its cache holds
    them. A server calls this at start-up, so that no request waits for it.
    """
    log_probs = torch.tensor([[[0.75, 0.25]]]).log()
    candidates = DraftCandidates(
        root=torch.zeros(1, dtype=torch.int64),
        token_ids=torch.tensor([[[1, 2]]]),
        log_probs=log_probs,
        hidden_cosines=torch.empty(1, 0),
    )
    candidates = candidates_on(candidates, builder.device)
    scores, prefix_lens = EdgeScores(candidates.log_probs[:, :, None]), torch.tensor([1])
    decoding_state(candidates, scores, torch.ones(1), prefix_lens)
    tree = builder.build(candidates, scores, torch.tensor([2]))
    full_mask(tree, prefix_lens)
    accept_paths(tree, tree.token_ids)
