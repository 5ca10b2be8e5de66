"""Triton kernels on the GPU: the host's trees and masks."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from random_trees import random_case, refuses_illegal_scores

from graft_sglang.contracts import DraftTree, EdgeScores
from graft_sglang.transfer import candidates_on
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.masks import numpy_backend


@pytest.mark.parametrize(("depth", "k", "most"), [(15, 32, 64), (15, 32, 256), (7, 8, 1024)])
def test_trees_equal_the_hosts(depth: int, k: int, most: int) -> None:
    from graft_sglang.tree.best_first_triton import TritonTreeBuilder

    builder = TritonTreeBuilder(torch.device("cuda"))
    for seed in range(20):
        case = random_case(seed, 8, depth, k, most)
        limits = (case.budgets, case.max_depths)
        expected = BestFirstTreeBuilder().build(case.candidates, case.scores, *limits)
        candidates = candidates_on(case.candidates, "cuda")
        found = builder.build(candidates, EdgeScores(case.scores.values.cuda()), *limits)
        for field in dataclasses.fields(DraftTree):
            assert torch.equal(getattr(found, field.name), getattr(expected, field.name))


def test_nan_and_plus_infinity_are_refused() -> None:
    from graft_sglang.tree.best_first_triton import TritonTreeBuilder

    refuses_illegal_scores(TritonTreeBuilder(torch.device("cuda")))


@pytest.mark.parametrize("seed", range(10))
def test_masks_equal_the_hosts(seed: int) -> None:
    from graft_sglang.tree.masks import triton_backend

    case = random_case(seed, 6, 9, 12, 200)
    tree = BestFirstTreeBuilder().build(case.candidates, case.scores, case.budgets)
    prefix_lens = torch.tensor([0, 1, 700, 33, 4096, 5])
    on_gpu = DraftTree(
        *(getattr(tree, field.name).cuda() for field in dataclasses.fields(DraftTree))
    )
    full = numpy_backend.full_mask(tree, prefix_lens)
    ours = triton_backend.full_mask(on_gpu, prefix_lens.cuda(), len(full), 4096)
    assert torch.equal(ours.cpu(), full)
    among = triton_backend.query_only_mask(on_gpu)
    assert torch.equal(among.cpu(), numpy_backend.query_only_mask(tree))
    packed, starts = numpy_backend.packed_mask(tree, prefix_lens)
    found = triton_backend.packed_mask(on_gpu, prefix_lens.cuda(), len(packed), 4096)
    assert torch.equal(found[0].cpu(), packed)
    assert torch.equal(found[1].cpu(), starts)
