"""The best-first builder against the plain-Python reference, node by node."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Case, assert_tree, candidates_from_logits, ddtree_case, expected, extract

from graft_sglang.contracts import DraftCandidates, EdgeScores
from graft_sglang.tree.best_first import BestFirstTreeBuilder

BUILD = BestFirstTreeBuilder().build


def build(case: Case):
    return BUILD(case.candidates, case.scores, case.budgets, case.max_depths)


def random_logits(generator, batch_size, depth, vocabulary, kind):
    """Smooth, heavily tied, or with forbidden tokens."""
    logits = 3 * torch.randn(batch_size, depth, vocabulary, generator=generator)
    if kind == "ties":
        return logits.round().clamp(-1, 1)
    if kind == "one value":
        return torch.zeros_like(logits)
    if kind == "forbidden":
        keep = torch.rand(logits.shape, generator=generator) < 0.4
        keep[..., 0] = True
        return torch.where(keep, logits.round(), -torch.inf)
    return logits


KINDS = ("smooth", "ties", "one value", "forbidden")


@pytest.mark.parametrize("part", range(10))
def test_a_thousand_random_cases_equal_the_reference(part: int) -> None:
    """DDTree scores: D 1..31, B 1..1024, K = min(B, V), small vocabularies for many ties."""
    generator = torch.Generator().manual_seed(part)

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    for number in range(99):
        depth = integer(1, 31)
        budget = integer(1, 2 ** integer(0, 10))
        vocabulary = integer(2, 2 ** integer(1, 11))
        logits = random_logits(generator, 1, depth, vocabulary, KINDS[number % len(KINDS)])
        case = ddtree_case(logits, min(budget, vocabulary), budget)
        assert_tree(build(case), 0, expected(case, 0))
    logits = random_logits(generator, 1, integer(1, 8), 150_000 - part, KINDS[part % 2])
    case = ddtree_case(logits, 1024 if part else 31, 1024 - part)
    assert_tree(build(case), 0, expected(case, 0))


@st.composite
def batches(draw: st.DrawFn) -> Case:
    """A few requests of unequal budgets and depth caps; scores with ties and -inf."""
    batch_size, depth, k = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    candidates = candidates_from_logits(
        random_logits(generator, batch_size, depth, k + 3, draw(st.sampled_from(KINDS[:3]))), k, 7
    )
    parents = draw(st.sampled_from((1, k)))
    values = torch.randn(batch_size, depth, parents, k, generator=generator)
    if draw(st.booleans()):
        values = values.round()
    if draw(st.booleans()):
        values[torch.rand(values.shape, generator=generator) < 0.2] = -torch.inf
    caps = st.lists(st.integers(0, depth + 2), min_size=batch_size, max_size=batch_size)
    budgets = st.lists(st.integers(0, 200), min_size=batch_size, max_size=batch_size)
    return Case(
        candidates,
        EdgeScores(values),
        torch.tensor(draw(budgets)),
        torch.tensor(draw(caps)) if draw(st.booleans()) else None,
    )


@settings(max_examples=200, deadline=None)
@given(batches())
def test_every_row_of_a_batch_equals_the_reference(case: Case) -> None:
    """Unequal budgets and depth caps, per-parent scores, padding, masks and links."""
    tree = build(case)
    for row in range(len(case.budgets)):
        assert_tree(tree, row, expected(case, row))
    assert tree.token_ids.shape[1] == int(tree.num_nodes.max())


@settings(max_examples=100, deadline=None)
@given(batches(), st.randoms(use_true_random=False))
def test_rows_do_not_depend_on_their_batch(case: Case, shuffle) -> None:
    """Fault 21: a row alone, or the rows shuffled, gives the same trees."""
    together = build(case)
    order = list(range(len(case.budgets)))
    shuffle.shuffle(order)
    shuffled = build(case.rows(torch.tensor(order)))
    for place, row in enumerate(order):
        alone = build(case.rows(torch.tensor([row])))
        assert extract(together, row) == extract(alone, 0) == extract(shuffled, place)


@settings(max_examples=100, deadline=None)
@given(batches(), st.integers(0, 200))
def test_a_smaller_budget_is_the_first_nodes_of_a_larger(case: Case, smaller: int) -> None:
    whole = build(case)
    cut = build(
        Case(case.candidates, case.scores, case.budgets.clamp(max=smaller), case.max_depths)
    )
    for row in range(len(case.budgets)):
        large, small = extract(whole, row), extract(cut, row)
        size = len(small.tokens)
        assert size == min(smaller, len(large.tokens) - 1) + 1
        assert small.tokens == large.tokens[:size]
        assert small.parents == large.parents[:size]
        assert small.scores == large.scores[:size]


@settings(max_examples=100, deadline=None)
@given(batches())
def test_what_every_tree_keeps(case: Case) -> None:
    """Stated without the reference: counts, order, depths, falling scores, distinct edges."""
    tree = build(case)
    for row in range(len(case.budgets)):
        nodes = extract(tree, row)
        limit = case.depth if case.max_depths is None else min(case.depth, case.max_depths[row])
        k = case.candidates.token_ids.shape[2]
        edges = sum(k**level for level in range(1, int(limit) + 1))
        assert len(nodes.tokens) == min(int(case.budgets[row]), edges) + 1
        assert nodes.parents[0] == -1
        for node in range(1, len(nodes.tokens)):
            parent = nodes.parents[node]
            assert 0 <= parent < node
            assert nodes.depths[node] == nodes.depths[parent] + 1 <= limit
            assert nodes.scores[node] <= nodes.scores[node - 1] or node == 1 or _rises(case)
        assert len(set(zip(nodes.parents, nodes.tokens, strict=True))) == len(nodes.tokens)


def _rises(case: Case) -> bool:
    """Positive edges let a child outscore its parent; log-probabilities never are."""
    return bool((case.scores.values > 0).any())


@settings(max_examples=50, deadline=None)
@given(batches())
def test_equal_rows_of_every_parent_give_the_tree_without_parents(case: Case) -> None:
    single = case.scores.values[:, :, :1]
    k = single.shape[-1]
    one = build(Case(case.candidates, EdgeScores(single.contiguous()), case.budgets))
    every = EdgeScores(single.expand(-1, -1, k, -1))
    many = build(Case(case.candidates, every, case.budgets))
    for row in range(len(case.budgets)):
        assert extract(one, row) == extract(many, row)


def tiny(values, budget, max_depth=None) -> Case:
    """One request; candidate k of depth d has token 10 (d + 1) + k."""
    scores = torch.tensor(values, dtype=torch.float32)[None]
    depth, k = scores.shape[1], scores.shape[3]
    ids = torch.arange(k).repeat(depth, 1) + 10 * torch.arange(1, depth + 1)[:, None]
    candidates = DraftCandidates(
        torch.tensor([5]), ids[None], scores[:, :, 0], torch.zeros(1, depth - 1)
    )
    caps = None if max_depth is None else torch.tensor([max_depth])
    return Case(candidates, EdgeScores(scores), torch.tensor([budget]), caps)


def test_equal_scores_pop_in_order_of_their_rank_paths() -> None:
    """Worked by hand: a path before its extensions, those before its next sibling."""
    tree = build(tiny([[[0.0, 0.0]], [[0.0, 0.0]]], 6))
    assert tree.token_ids[0].tolist() == [5, 10, 20, 21, 11, 20, 21]
    assert tree.parents[0].tolist() == [-1, 0, 1, 1, 0, 4, 4]


def test_children_follow_their_own_parents_scores() -> None:
    """Worked by hand: under candidate 1 the order of the children turns round."""
    values = [[[-0.5, -1.0], [0.0, 0.0]], [[-0.25, -4.0], [-4.0, -0.125]]]
    tree = build(tiny(values, 6))
    assert tree.token_ids[0].tolist() == [5, 10, 20, 11, 21, 21, 20]
    assert tree.parents[0].tolist() == [-1, 0, 1, 0, 3, 1, 3]
    assert tree.scores[0].tolist() == [0.0, -0.5, -0.75, -1.0, -1.125, -4.5, -5.0]


def test_scores_are_summed_in_float64() -> None:
    """In float32 candidate 0's child would tie with candidate 1, and its path comes first."""
    edge = -(2.0**-30)
    tree = build(tiny([[[-1.0, -1.0]], [[edge, -5.0]]], 3))
    assert tree.token_ids[0].tolist() == [5, 10, 11, 20]
    assert tree.scores[0].tolist() == [0.0, -1.0, -1.0, -1.0 + edge]


def test_forbidden_edges_come_last() -> None:
    tree = build(tiny([[[0.0, -torch.inf]], [[-1000.0, -torch.inf]]], 6))
    assert tree.token_ids[0].tolist() == [5, 10, 20, 21, 11, 20, 21]
    assert tree.scores[0].tolist() == [0.0, 0.0, -1000.0] + [-torch.inf] * 4


@pytest.mark.parametrize(("budget", "max_depth"), [(0, None), (9, 0)])
def test_a_tree_may_be_its_root_alone(budget: int, max_depth: int | None) -> None:
    tree = build(tiny([[[0.0, -1.0]]], budget, max_depth))
    assert tree.num_nodes.tolist() == [1]
    assert tree.token_ids.tolist() == [[5]]
    assert tree.ancestors.tolist() == [[[1]]]


def test_an_empty_batch_gives_no_trees() -> None:
    case = tiny([[[0.0, -1.0]]], 3)
    tree = build(case.rows(torch.empty(0, dtype=torch.int64)))
    assert tree.num_nodes.shape == (0,)


@pytest.mark.parametrize("cap", range(4))
def test_depth_caps_cut_the_tree(cap: int) -> None:
    """Fault 24: no node deeper than what may still be generated; the budget goes to the width."""
    case = tiny([[[-0.1, -9.0]], [[-0.1, -9.0]], [[-0.1, -9.0]]], 14, cap)
    tree = build(case)
    assert int(tree.depths.max()) == cap
    assert int(tree.num_nodes[0]) == 2 ** (cap + 1) - 1
