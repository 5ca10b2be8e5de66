"""Compiling the kernels before the first request needs them."""

from __future__ import annotations

import torch

from graft_sglang.contracts import DraftCandidates, EdgeScores, TreeBuilder
from graft_sglang.tree.acceptance import accept_paths
from graft_sglang.tree.mask import expand_masks


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
    tree = builder.build(candidates, EdgeScores(log_probs[:, :, None, :]), torch.tensor([2]))
    expand_masks(tree, torch.tensor([1]))
    accept_paths(tree, tree.token_ids)
