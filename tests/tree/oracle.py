"""The slow truth that the kernels are compared with, and cases to compare on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from graft_sglang.benchmarks import reference
from graft_sglang.contracts import DraftCandidates, DraftTree, EdgeScores
from graft_sglang.scorers.ddtree import DDTreeScorer


@dataclass
class Case:
    """One batch for a builder."""

    candidates: DraftCandidates
    scores: EdgeScores
    budgets: torch.Tensor
    max_depths: torch.Tensor | None = None

    @property
    def depth(self) -> int:
        return self.candidates.token_ids.shape[1]

    def rows(self, index: torch.Tensor) -> Case:
        """The requests of ``index``, in its order."""
        c = self.candidates
        return Case(
            DraftCandidates(
                c.root[index], c.token_ids[index], c.log_probs[index], c.hidden_cosines[index]
            ),
            EdgeScores(self.scores.values[index]),
            self.budgets[index],
            None if self.max_depths is None else self.max_depths[index],
        )


def candidates_from_logits(logits: torch.Tensor, k: int, root: int = 0) -> DraftCandidates:
    """Candidates as the engine makes them: full log-softmax, then top-k.

    Args:
        logits: float32 [bs, D, V]
    """
    log_probs, token_ids = torch.log_softmax(logits, dim=-1).topk(k, dim=-1)
    batch_size, depth = logits.shape[:2]
    return DraftCandidates(
        root=torch.full((batch_size,), root),
        token_ids=token_ids,
        log_probs=log_probs,
        hidden_cosines=torch.zeros(batch_size, depth - 1),
    )


def ddtree_case(logits: torch.Tensor, k: int, budget: int) -> Case:
    candidates = candidates_from_logits(logits, k)
    budgets = torch.full((len(logits),), budget)
    return Case(candidates, DDTreeScorer().score(candidates), budgets)


def expected(case: Case, row: int, grow=reference.best_first) -> reference.ReferenceTree:
    """The reference's tree of one request."""
    limit = case.depth if case.max_depths is None else int(case.max_depths[row])
    return grow(
        int(case.candidates.root[row]),
        case.candidates.token_ids[row].tolist(),
        case.scores.values[row].tolist(),
        int(case.budgets[row]),
        limit,
    )


def extract(tree: DraftTree, row: int) -> reference.ReferenceTree:
    """One request's tree in the reference's form."""
    size = int(tree.num_nodes[row])
    return reference.ReferenceTree(
        tree.token_ids[row, :size].tolist(),
        tree.parents[row, :size].tolist(),
        tree.depths[row, :size].tolist(),
        tree.scores[row, :size].tolist(),
    )


def ancestor_sets(tree: DraftTree, row: int) -> list[set[int]]:
    """The nodes whose bits are set in each node's mask."""
    found = []
    for words in tree.ancestors[row].tolist():
        bits = sum((word & (2**64 - 1)) << (64 * place) for place, word in enumerate(words))
        found.append({node for node in range(64 * len(words)) if bits >> node & 1})
    return found


def assert_tree(tree: DraftTree, row: int, want: reference.ReferenceTree) -> None:
    """Every field of one row equals the reference's, padding included."""
    assert extract(tree, row) == want
    size = len(want.tokens)
    first_child, next_sibling = reference.links(want)
    assert tree.first_child[row, :size].tolist() == first_child
    assert tree.next_sibling[row, :size].tolist() == next_sibling
    masks = ancestor_sets(tree, row)
    assert masks[:size] == [reference.ancestors(want, node) for node in range(size)]
    assert not any(masks[size:])
    for name, padding in (
        ("token_ids", 0),
        ("parents", -1),
        ("depths", 0),
        ("scores", 0),
        ("first_child", -1),
        ("next_sibling", -1),
    ):
        assert (getattr(tree, name)[row, size:] == padding).all(), name
