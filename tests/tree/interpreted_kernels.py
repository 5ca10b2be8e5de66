"""Run by ``test_triton_kernels.py`` in a process of its own, under Triton's interpreter.

Grows trees and masks with the Triton kernels and compares them with the host's, what is refused
too; prints how many trees were equal, and fails at the first that is not.
"""

from __future__ import annotations

import dataclasses
import sys

import torch
from random_trees import random_case, refuses_illegal_scores

from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.best_first_triton import TritonTreeBuilder
from graft_sglang.tree.masks import numpy_backend, triton_backend

BATCH = 5


def main(trees: int) -> None:
    host = BestFirstTreeBuilder()
    device = TritonTreeBuilder(torch.device("cpu"))
    for seed in range(trees // BATCH):
        # A few trees are wide enough for two words of ancestors.
        most = 70 if seed % 20 == 7 else 12
        case = random_case(seed, BATCH, 1 + seed % 5, 1 + seed % 7, most)
        arguments = (case.candidates, case.scores, case.budgets, case.max_depths)
        expected, found = host.build(*arguments), device.build(*arguments)
        for field in dataclasses.fields(expected):
            ours, theirs = getattr(found, field.name), getattr(expected, field.name)
            assert ours.dtype is theirs.dtype, (seed, field.name)
            assert torch.equal(ours, theirs), (seed, field.name)
        if seed % 4 == 0:
            compare_masks(found, torch.tensor([3, 0, 11, 1, 40]))
    refuses_illegal_scores(device)
    print(trees // BATCH * BATCH)


def compare_masks(tree, prefix_lens: torch.Tensor) -> None:
    longest = int(prefix_lens.max())
    full = numpy_backend.full_mask(tree, prefix_lens)
    assert torch.equal(triton_backend.full_mask(tree, prefix_lens, len(full), longest), full)
    among = numpy_backend.query_only_mask(tree)
    assert torch.equal(triton_backend.query_only_mask(tree), among)
    packed, starts = numpy_backend.packed_mask(tree, prefix_lens)
    ours = triton_backend.packed_mask(tree, prefix_lens, len(packed), longest)
    assert torch.equal(ours[0], packed)
    assert torch.equal(ours[1], starts)


if __name__ == "__main__":
    main(int(sys.argv[1]))
