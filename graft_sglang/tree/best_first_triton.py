"""Best-first draft trees grown on the device: the trees of ``best_first``, node by node.

One program a request. Each node has one open edge, to its best child that is not in the tree yet;
a step takes the best open edge of all nodes, instead of a heap. Everything about the nodes is held
in registers, one lane a node, so no step waits for memory that another lane has written.
"""

from __future__ import annotations

import dataclasses

import torch
import triton
import triton.language as tl

from graft_sglang.contracts import (
    ComponentContext,
    DraftCandidates,
    DraftTree,
    EdgeScores,
    TreeBuilder,
)
from graft_sglang.transfer import copy_together
from graft_sglang.tree.arrays import tree_sizes


class TritonTreeBuilder(TreeBuilder):
    """``BestFirstTreeBuilder`` without a heap on the host.

    Edge scores stay on the device; the finished tree comes to the host in one copy, and with it
    whether all scores were legal.
    """

    def __init__(self, device: torch.device) -> None:
        """Raises ``ValueError`` where Triton can't run on ``device``."""
        if device.type == "cpu" and not triton.knobs.runtime.interpret:
            raise ValueError(
                "The tree builder 'best_first_triton' needs a GPU: use 'best_first' on the CPU."
            )
        self.device = device

    @classmethod
    def from_context(cls, context: ComponentContext) -> TritonTreeBuilder:
        return cls(context.device)

    def build(
        self,
        candidates: DraftCandidates,
        scores: EdgeScores,
        budgets: torch.Tensor,
        max_depths: torch.Tensor | None = None,
    ) -> DraftTree:
        """As ``TreeBuilder.build``, with candidates and scores on this builder's device.

        Raises:
            ValueError: shapes that don't fit together, budgets or depths out of range, an edge
                score that is NaN or +inf.
        """
        sizes, depths = tree_sizes(candidates, scores, budgets, max_depths)
        batch_size = len(sizes)
        width = max(sizes.tolist(), default=1)
        limits = torch.stack((sizes, depths)).to(self.device)
        tree = _empty_tree(batch_size, width, limits[0])
        _, depth, parents, k = scores.values.shape
        if batch_size:
            _grow[(batch_size,)](
                candidates.root.contiguous(),
                candidates.token_ids.contiguous(),
                scores.values.contiguous(),
                limits,
                batch_size,
                tree.token_ids,
                tree.parents,
                tree.depths,
                tree.scores,
                tree.first_child,
                tree.next_sibling,
                width,
                depth,
                parents,
                k,
                NODES=triton.next_power_of_2(width),
                CHILDREN=triton.next_power_of_2(k),
            )
            words = tree.ancestors.shape[2]
            _mark_ancestors[(batch_size, width)](
                tree.parents,
                limits,
                tree.ancestors,
                width,
                words,
                WORDS=triton.next_power_of_2(words),
            )
        fields = [getattr(tree, field.name) for field in dataclasses.fields(DraftTree)]
        *fields, legal = copy_together([*fields, _all_legal(scores.values)], "cpu")
        if not legal:
            raise ValueError("edge scores must not be NaN or +inf")
        return DraftTree(*fields)


def _all_legal(values: torch.Tensor) -> torch.Tensor:
    """bool []: whether no score is NaN or +inf, those that are never read left out."""
    return (values[:, 0, 0] < torch.inf).all() & (values[:, 1:] < torch.inf).all()


def _empty_tree(batch_size: int, width: int, sizes: torch.Tensor) -> DraftTree:
    def empty(dtype: torch.dtype, *more: int) -> torch.Tensor:
        return torch.empty(batch_size, width, *more, dtype=dtype, device=sizes.device)

    return DraftTree(
        token_ids=empty(torch.int64),
        parents=empty(torch.int32),
        depths=empty(torch.int32),
        scores=empty(torch.float64),
        first_child=empty(torch.int32),
        next_sibling=empty(torch.int32),
        ancestors=empty(torch.int64, (width + 63) // 64),
        num_nodes=sizes.to(torch.int32),
    )


@triton.jit
def _at(values, lanes, lane):
    """The value that one lane holds."""
    return tl.sum(tl.where(lanes == lane, values, tl.zeros_like(values)), axis=0)


@triton.jit
def _next_child(values, row, level_score, last, k, CHILDREN: tl.constexpr):
    """Score of the path to the child after ``last`` (-1: the first) and its candidate, or k.

    Children fall by edge score; equal ones are in order of their candidates. Illegal scores, which
    the host refuses later, count as -inf: links made from NaN would lead outside the tree.
    """
    children = tl.arange(0, CHILDREN)
    edges = tl.load(values + row * k + children, mask=children < k, other=-float("inf"))
    edges = tl.where(edges < float("inf"), edges, -float("inf"))
    bound = tl.load(values + row * k + last, mask=last >= 0, other=-float("inf"))
    bound = tl.where(bound < float("inf"), bound, -float("inf"))
    follows = (edges < bound) | ((edges == bound) & (children > last)) | (last < 0)
    follows = follows & (children < k)
    best = tl.max(tl.where(follows, edges, -float("inf")), axis=0)
    first = tl.min(tl.where(follows & (edges == best), children, k), axis=0)
    return level_score + best.to(tl.float64), first


@triton.jit
def _path_before(a, b, lanes, parents, depths, ranks, next_ranks):
    """Whether the rank path of node ``a``'s open edge is smaller than that of node ``b``'s."""
    rank_a = _at(next_ranks, lanes, a)
    rank_b = _at(next_ranks, lanes, b)
    depth_a = _at(depths, lanes, a)
    depth_b = _at(depths, lanes, b)
    while depth_a > depth_b:
        rank_a = _at(ranks, lanes, a)
        a = _at(parents, lanes, a)
        depth_a -= 1
    while depth_b > depth_a:
        rank_b = _at(ranks, lanes, b)
        b = _at(parents, lanes, b)
        depth_b -= 1
    while a != b:
        rank_a = _at(ranks, lanes, a)
        rank_b = _at(ranks, lanes, b)
        a = _at(parents, lanes, a)
        b = _at(parents, lanes, b)
    return rank_a < rank_b


@triton.jit
def _grow(
    root,
    token_ids,
    values,
    limits,
    batch_size,
    out_tokens,
    out_parents,
    out_depths,
    out_scores,
    out_first_child,
    out_next_sibling,
    width,
    depth,
    parents_a_level,
    k,
    NODES: tl.constexpr,
    CHILDREN: tl.constexpr,
):
    request = tl.program_id(0)
    size = tl.load(limits + request).to(tl.int32)
    max_depth = tl.load(limits + batch_size + request).to(tl.int32)
    lanes = tl.arange(0, NODES)
    nothing = tl.full([NODES], -1, tl.int32)
    parents = nothing
    depths = tl.zeros([NODES], tl.int32)
    chosen = tl.zeros([NODES], tl.int32)
    ranks = tl.zeros([NODES], tl.int32)
    first_child = nothing
    next_sibling = nothing
    last_child = nothing
    scores = tl.zeros([NODES], tl.float64)
    tokens = tl.where(lanes == 0, tl.load(root + request), tl.zeros([NODES], tl.int64))
    # The open edge of each node: its path's score, the candidate it leads to, the child's rank.
    keys = tl.zeros([NODES], tl.float64)
    pending = nothing
    next_ranks = tl.zeros([NODES], tl.int32)
    is_open = lanes < 0
    added = tl.zeros([], tl.int32)
    for node in range(1, size):
        # The node added last opens its first edge.
        level = _at(depths, lanes, added)
        if level < max_depth:
            row = (request * depth + level) * parents_a_level
            if parents_a_level > 1:
                row += _at(chosen, lanes, added)
            key, child = _next_child(values, row, _at(scores, lanes, added), -1, k, CHILDREN)
            here = lanes == added
            keys = tl.where(here, key, keys)
            pending = tl.where(here, child, pending)
            is_open = is_open | here
        best = tl.max(tl.where(is_open, keys, -float("inf")), axis=0)
        tied = is_open & (keys == best)
        parent = tl.min(tl.where(tied, lanes, NODES), axis=0)
        tied = tied & (lanes != parent)
        while tl.sum(tied.to(tl.int32), axis=0) > 0:
            rival = tl.min(tl.where(tied, lanes, NODES), axis=0)
            if _path_before(rival, parent, lanes, parents, depths, ranks, next_ranks):
                parent = rival
            tied = tied & (lanes != rival)
        # The edge is taken: a new node, linked to its parent.
        level = _at(depths, lanes, parent)
        child = _at(pending, lanes, parent)
        rank = _at(next_ranks, lanes, parent)
        here = lanes == node
        token = tl.load(token_ids + (request * depth + level) * k + child)
        tokens = tl.where(here, token, tokens)
        parents = tl.where(here, parent, parents)
        depths = tl.where(here, level + 1, depths)
        chosen = tl.where(here, child, chosen)
        ranks = tl.where(here, rank, ranks)
        scores = tl.where(here, best, scores)
        above = lanes == parent
        older = _at(last_child, lanes, parent)
        first_child = tl.where(above & (rank == 0), node, first_child)
        next_sibling = tl.where((lanes == older) & (rank > 0), node, next_sibling)
        last_child = tl.where(above, node, last_child)
        # The parent opens its next edge, if it has one more child.
        row = (request * depth + level) * parents_a_level
        if parents_a_level > 1:
            row += _at(chosen, lanes, parent)
        key, following = _next_child(values, row, _at(scores, lanes, parent), child, k, CHILDREN)
        keys = tl.where(above, key, keys)
        pending = tl.where(above, following, pending)
        next_ranks = tl.where(above, rank + 1, next_ranks)
        is_open = is_open & ((following < k) | (lanes != parent))
        added = node
    inside = lanes < width
    start = request * width
    tl.store(out_tokens + start + lanes, tokens, mask=inside)
    tl.store(out_parents + start + lanes, parents, mask=inside)
    tl.store(out_depths + start + lanes, depths, mask=inside)
    tl.store(out_scores + start + lanes, scores, mask=inside)
    tl.store(out_first_child + start + lanes, first_child, mask=inside)
    tl.store(out_next_sibling + start + lanes, next_sibling, mask=inside)


@triton.jit
def _mark_ancestors(parents, limits, ancestors, width, words, WORDS: tl.constexpr):
    """Bits of one node and its ancestors; none for a padding node."""
    request = tl.program_id(0)
    node = tl.program_id(1)
    places = tl.arange(0, WORDS)
    marked = tl.zeros([WORDS], tl.int64)
    at = tl.where(node < tl.load(limits + request), node, -1)
    while at >= 0:
        bit = tl.full([], 1, tl.int64) << (at % 64).to(tl.int64)
        marked = tl.where(places == at // 64, marked | bit, marked)
        at = tl.load(parents + request * width + at)
    start = (request * width + node) * words
    tl.store(ancestors + start + places, marked, mask=places < words)
