"""The walk down the tree: token by token, and as a distribution."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import ddtree_case, expected, extract
from scipy.stats import chisquare

from graft_sglang.benchmarks import reference
from graft_sglang.contracts import DraftTree
from graft_sglang.tree.acceptance import accept_paths
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.chain import ChainTreeBuilder


def grow(logits, k, budget, builder=BestFirstTreeBuilder) -> DraftTree:
    case = ddtree_case(logits, k, budget)
    return builder().build(case.candidates, case.scores, case.budgets)


def follow(tree: DraftTree, truths) -> torch.Tensor:
    """The target's token at each node when request b's text is ``truths[b]``."""
    return torch.stack(
        [truth[depths.long()] for truth, depths in zip(truths, tree.depths, strict=True)]
    )


def committed(paths, row) -> list[int]:
    return paths.tokens[row, : int(paths.committed[row])].tolist()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(0, 60))
def test_the_walk_equals_the_references(seed: int, batch_size: int, budget: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tree = grow(torch.randn(batch_size, 4, 5, generator=generator), 4, budget)
    next_tokens = torch.randint(0, 5, tree.token_ids.shape, generator=generator)
    paths = accept_paths(tree, next_tokens)
    for row in range(batch_size):
        nodes, tokens = reference.walk(extract(tree, row), next_tokens[row].tolist())
        assert paths.nodes[row, : len(nodes)].tolist() == nodes
        assert (paths.nodes[row, len(nodes) :] == -1).all()
        assert committed(paths, row) == tokens
        assert paths.lengths[row] == len(nodes) - 1
        assert paths.bonus[row] == tokens[-1]


def test_token_zero_on_the_true_path_is_a_token() -> None:
    """Fault 1."""
    logits = torch.full((1, 4, 6), -9.0)
    logits[0, :, 0] = 0.0
    tree = grow(logits, 2, 8)
    paths = accept_paths(tree, torch.zeros_like(tree.token_ids))
    assert paths.lengths.tolist() == [4]
    assert committed(paths, 0) == [0] * 5


def test_padding_is_no_node_of_token_zero() -> None:
    """Fault 1: a row without drafts beside a full one accepts nothing, wanting token 0."""
    logits = torch.zeros(2, 3, 4)
    case = ddtree_case(logits, 4, 9)
    tree = BestFirstTreeBuilder().build(case.candidates, case.scores, torch.tensor([0, 9]))
    paths = accept_paths(tree, torch.zeros_like(tree.token_ids))
    assert paths.lengths.tolist()[0] == 0
    assert committed(paths, 0) == [0]
    assert paths.nodes[0].tolist() == [0] + [-1] * (paths.nodes.shape[1] - 1)


def test_four_requests_with_unequal_accept_lengths_equal_their_solo_walks() -> None:
    """Fault 5."""
    logits = torch.randn(4, 6, 30, generator=torch.Generator().manual_seed(1))
    tree = grow(logits, 8, 40)
    truths = torch.cat([logits.argmax(-1), torch.full((4, 1), 29)], dim=1)
    for row, length in enumerate((3, 0, 2, 1)):
        truths[row, length] = 31 + row
    paths = accept_paths(tree, follow(tree, truths))
    assert paths.lengths.tolist() == [3, 0, 2, 1]
    assert paths.bonus.tolist() == [31, 32, 33, 34]
    for row in range(4):
        alone = grow(logits[row : row + 1], 8, 40)
        solo = accept_paths(alone, follow(alone, truths[row : row + 1]))
        assert committed(paths, row) == committed(solo, 0)


def test_the_truth_always_at_rank_two_is_found() -> None:
    """Fault 6: the accepted path is scattered over the tree, never its first nodes."""
    logits = torch.randn(2, 4, 9, generator=torch.Generator().manual_seed(2))
    second = logits.topk(2).indices[:, :, 1]
    tree = grow(logits, 2, 30)
    paths = accept_paths(tree, follow(tree, torch.cat([second, torch.full((2, 1), 77)], dim=1)))
    assert paths.lengths.tolist() == [4, 4]
    assert paths.tokens[:, :4].equal(second)
    assert paths.bonus.tolist() == [77, 77]
    for row in range(2):
        assert paths.nodes[row].tolist() != list(range(5))
        picked = tree.parents[row, paths.nodes[row, 1:]]
        assert picked.tolist() == paths.nodes[row, :-1].tolist()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 130))
def test_a_tree_accepts_what_it_holds_of_the_chain(seed: int, budget: int) -> None:
    """Fault 23: never fewer than the chain, up to the depth at which the tree leaves it.

    A best-first tree need not hold the whole chain: its budget may go to likelier siblings.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(1, 6, 12, generator=generator)
    chain = grow(logits, 3, 6, ChainTreeBuilder)
    tree = grow(logits, 3, budget)
    truth = torch.cat([logits.argmax(-1), torch.zeros(1, 1, dtype=torch.int64)], dim=1)
    held = int(accept_paths(tree, follow(tree, truth)).lengths)
    truth[0, int(torch.randint(0, 7, (), generator=generator))] = 99
    by_chain = int(accept_paths(chain, follow(chain, truth)).lengths)
    by_tree = int(accept_paths(tree, follow(tree, truth)).lengths)
    assert by_tree >= min(by_chain, held)


def test_a_budget_for_every_path_holds_the_chain() -> None:
    """Fault 23, where it is certain: 3 + 9 + 27 nodes are all there are."""
    logits = torch.randn(1, 3, 12, generator=torch.Generator().manual_seed(3))
    tree = grow(logits, 3, 39)
    truth = torch.cat([logits.argmax(-1), torch.zeros(1, 1, dtype=torch.int64)], dim=1)
    assert int(accept_paths(tree, follow(tree, truth)).lengths) == 3


def test_a_flat_marginal_may_push_the_chain_out() -> None:
    """Fault 23, where it is not: two near-equal siblings come before the second depth."""
    logits = torch.tensor([[[0.0, -0.1, -9.0], [0.0, 0.0, 0.0]]])
    tree = grow(logits, 3, 2)
    assert tree.depths[0].tolist() == [0, 1, 1]


def test_strided_and_narrow_arguments_are_read_as_they_are() -> None:
    generator = torch.Generator().manual_seed(6)
    tree = grow(torch.randn(3, 4, 5, generator=generator), 4, 40)
    tokens = torch.randint(0, 5, tree.token_ids.shape, generator=generator)
    want = accept_paths(tree, tokens)
    assert want.lengths.sum() > 0
    fields = {name: getattr(tree, name) for name in DraftTree.__slots__}
    for name in ("token_ids", "first_child", "next_sibling"):
        fields[name] = fields[name].T.contiguous().T
    found = accept_paths(DraftTree(**fields), tokens.int().T.contiguous().T)
    assert found.nodes.equal(want.nodes)
    assert found.tokens.equal(want.tokens)


def test_next_tokens_of_another_shape_are_refused() -> None:
    tree = grow(torch.zeros(1, 2, 4), 2, 3)
    with pytest.raises(ValueError, match=r"next_tokens must be \[1, 4\], not \[1, 3\]"):
        accept_paths(tree, torch.zeros(1, 3, dtype=torch.int64))


def temperature_1(probs: torch.Tensor) -> torch.Tensor:
    return probs


def top_k_3(probs: torch.Tensor) -> torch.Tensor:
    kept = probs.where(probs >= probs.topk(3).values[..., -1:], 0.0)
    return kept / kept.sum(-1, keepdim=True)


def top_p_80(probs: torch.Tensor) -> torch.Tensor:
    """The most probable tokens whose predecessors' mass is under 0.8."""
    ordered, order = probs.sort(descending=True)
    kept = ordered.where(ordered.cumsum(-1) - ordered < 0.8, 0.0)
    kept = torch.zeros_like(probs).scatter(-1, order, kept)
    return kept / kept.sum(-1, keepdim=True)


def min_p_30(probs: torch.Tensor) -> torch.Tensor:
    kept = probs.where(probs >= 0.3 * probs.amax(-1, keepdim=True), 0.0)
    return kept / kept.sum(-1, keepdim=True)


@pytest.mark.parametrize("adjust", [temperature_1, top_k_3, top_p_80, min_p_30])
@pytest.mark.parametrize(("vocabulary", "budget"), [(4, 0), (4, 7), (5, 24), (8, 40)])
def test_sample_then_match_keeps_the_targets_distribution(adjust, vocabulary, budget) -> None:
    """Faults 2 and 3: 1e5 draws, the joint of three committed tokens, sibling nodes in the tree.

    The target's next token depends on all tokens since the root. Rounds that commit fewer than
    three tokens are continued by plain sampling, as the next rounds would.
    """
    draws = 100_000
    generator = torch.Generator().manual_seed(vocabulary * 1000 + budget)
    v = vocabulary
    first = adjust(torch.randn(v, generator=generator).softmax(-1))
    second = adjust(torch.randn(v, v, generator=generator).softmax(-1))
    third = adjust((2 * torch.randn(v, v, v, generator=generator)).softmax(-1))

    def sample(probs: torch.Tensor) -> torch.Tensor:
        return torch.multinomial(probs, 1, generator=generator)[:, 0]

    tree = grow(torch.randn(1, 2, v, generator=generator), min(v, 4), budget)
    nodes = extract(tree, 0)
    columns = []
    for node in range(len(nodes.tokens)):
        path = sorted(reference.ancestors(nodes, node))[1:]
        tokens = [nodes.tokens[step] for step in path]
        law = (first, second, third)[len(tokens)][tuple(tokens)]
        columns.append(torch.multinomial(law, draws, replacement=True, generator=generator))
    wide = DraftTree(
        **{
            name: getattr(tree, name).expand(draws, *getattr(tree, name).shape[1:])
            for name in DraftTree.__slots__
        }
    )
    paths = accept_paths(wide, torch.stack(columns, dim=1))
    if budget:
        assert len(set(paths.lengths.tolist())) > 1
        assert (tree.next_sibling >= 0).any()
    tokens = torch.nn.functional.pad(paths.tokens, (0, 3 - paths.tokens.shape[1]))
    tokens[:, 1] = tokens[:, 1].where(paths.committed > 1, sample(second[tokens[:, 0]]))
    tokens[:, 2] = tokens[:, 2].where(
        paths.committed > 2, sample(third[tokens[:, 0], tokens[:, 1]])
    )
    joint = (first[:, None, None] * second[:, :, None] * third).flatten().double()
    counts = torch.bincount((tokens[:, 0] * v + tokens[:, 1]) * v + tokens[:, 2], minlength=v**3)
    assert counts[joint == 0].sum() == 0
    observed, wanted = pool_rare_cells(counts.double(), joint * draws)
    assert chisquare(observed, wanted * (observed.sum() / wanted.sum())).pvalue > 0.001


def pool_rare_cells(observed: torch.Tensor, wanted: torch.Tensor):
    """Cells that expect fewer than 5 draws counted together: the statistic needs it."""
    rare = wanted < 5
    pooled = [torch.cat([x[~rare], x[rare].sum()[None]]).numpy() for x in (observed, wanted)]
    keep = pooled[1] >= 5
    return pooled[0][keep], pooled[1][keep]


def test_draws_differ_between_seeds() -> None:
    """Fault 2: the walk follows the sample, not the argmax."""
    tree = grow(torch.zeros(1, 3, 4), 4, 30)
    seen = set()
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(0, 4, tree.token_ids.shape, generator=generator)
        seen.add(tuple(committed(accept_paths(tree, drawn), 0)))
    assert len(seen) > 10


def test_the_references_tree_is_what_the_walk_sees() -> None:
    """The links lead to every child: each node can be reached by wanting its path."""
    case = ddtree_case(torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(4)), 4, 50)
    tree = BestFirstTreeBuilder().build(case.candidates, case.scores, case.budgets)
    nodes = expected(case, 0)
    for node in range(len(nodes.tokens)):
        path = sorted(reference.ancestors(nodes, node))
        wanted = torch.full(tree.token_ids.shape, 1000)
        for above, below in itertools.pairwise(path):
            wanted[0, above] = nodes.tokens[below]
        paths = accept_paths(tree, wanted)
        assert paths.nodes[0, : len(path)].tolist() == path
        assert paths.bonus.tolist() == [1000]
