"""What is drawn from rounds, against loops written from the paper's text."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from literal import compatibility
from synthetic_rounds import DEPTH, embedding, simulate

from graft_sglang.scorers.tdes.batches import Batcher
from graft_sglang.scorers.tdes.examples import Examples, collect_examples, mismatch_pairs
from graft_sglang.scorers.tdes.losses import LossWeights, bce_loss, kl_loss, pair_loss
from graft_sglang.scorers.tdes.model import TDESModel
from graft_sglang.traces import RoundRecord


def slow_pairs(record: RoundRecord) -> set[tuple[int, ...]]:
    """(p+, c+, p-, c-, d) of a round."""
    depth = [0]
    for parent in record.tree_parents[1:]:
        depth.append(depth[parent] + 1)
    stop = int(record.accepted[-1])
    wanted = int(record.target_tokens[stop])
    p, d = int(record.tree_tokens[stop]), depth[stop] + 1
    nodes = range(1, len(record.tree_tokens))
    wrong = [n for n in nodes if depth[n] == d and record.tree_tokens[n] == wanted]
    if not wrong:
        return set()
    pairs = {(p, wanted, int(record.tree_tokens[record.tree_parents[n]]), wanted, d) for n in wrong}
    for n in nodes:
        if record.tree_parents[n] == stop:
            pairs.add((p, wanted, p, int(record.tree_tokens[n]), d))
    return {pair for pair in pairs if pair[2:4] != (p, wanted)}


def test_pairs_of_mismatched_rounds() -> None:
    records = simulate(10, 20)
    kinds = {"parent": 0, "child": 0, "none": 0}
    for record in records:
        found = mismatch_pairs(record)
        found[:, 4] += 1
        expected = slow_pairs(record)
        assert {tuple(row) for row in found.tolist()} == expected
        assert len(found) == len(expected)
        kinds["none"] += not expected
        kinds["parent"] += sum(p != q for p, _, q, _, _ in expected)
        kinds["child"] += sum(c != e for _, c, _, e, _ in expected)
    assert min(kinds.values()) > 20


def test_edges_and_labels() -> None:
    records = simulate(3, 8)
    examples = collect_examples(records)
    expected = []
    for record in records:
        for node in range(1, len(record.tree_tokens)):
            parent = int(record.tree_parents[node])
            child = int(record.tree_tokens[node])
            label = float(record.target_tokens[parent] == child)
            level = int(record.tree_depths[node]) - 1
            expected.append((int(record.tree_tokens[parent]), child, level, label))
    edges = examples.edges
    found = zip(
        examples.tokens[edges.parents].tolist(),
        examples.tokens[edges.children].tolist(),
        edges.levels.tolist(),
        examples.labels.tolist(),
        strict=True,
    )
    assert list(found) == expected
    positive = sum(label for *_, label in expected)
    assert examples.positive_weight == pytest.approx((len(expected) - positive) / positive)


def test_accepted_parents_have_their_own_candidates() -> None:
    records = simulate(3, 8)
    examples = collect_examples(records)
    row = 0
    for record in records:
        for level in range(min(record.committed, DEPTH)):
            parent = record.tree_tokens[record.accepted[level]]
            assert examples.tokens[examples.kl_parents[row]] == parent
            assert examples.kl_levels[row] == level
            assert examples.tokens[examples.kl_children[row]].tolist() == list(
                record.token_ids[level]
            )
            assert examples.log_q[row].tolist() == list(record.log_probs[level])
            assert examples.target_logits[row].tolist() == list(record.target_logits[level])
            row += 1
    assert row == len(examples.kl_parents)


def slow_losses(
    records: list[RoundRecord], model: TDESModel, table: torch.Tensor, weight: float
) -> dict[str, float]:
    kl, pairs, edges, labels = [], [], [], []
    for record in records:
        for level in range(len(record.target_logits)):
            p = int(record.tree_tokens[record.accepted[level]])
            f = [compatibility(model, table, p, c, level + 1) for c in record.token_ids[level]]
            kl.append(
                kl_loss(
                    torch.tensor([f]),
                    torch.from_numpy(record.log_probs[level : level + 1]),
                    torch.from_numpy(record.target_logits[level : level + 1]),
                )
            )
        for p, c, q, e, d in slow_pairs(record):
            good, bad = (compatibility(model, table, *edge, d) for edge in ((p, c), (q, e)))
            pairs.append(pair_loss(torch.tensor([good]), torch.tensor([bad]), 1.0))
        for node in range(1, len(record.tree_tokens)):
            parent = record.tree_parents[node]
            p, c = int(record.tree_tokens[parent]), int(record.tree_tokens[node])
            edges.append(compatibility(model, table, p, c, int(record.tree_depths[node])))
            labels.append(float(record.target_tokens[parent] == c))
    return {
        "kl": float(torch.stack(kl).mean()),
        "pair": float(torch.stack(pairs).mean()),
        "bce": float(bce_loss(torch.tensor(edges), torch.tensor(labels), weight)),
    }


def test_losses_of_a_batch_are_those_of_its_rounds() -> None:
    records = simulate(8, 5)
    table = embedding(12)
    torch.manual_seed(0)
    model = TDESModel(12, DEPTH, 8)
    with torch.no_grad():
        model.depth_embedding.normal_()
    examples: Examples = collect_examples(records)
    mismatched = [i for i, record in enumerate(records) if slow_pairs(record)]
    others = [i for i in range(len(records)) if i not in mismatched]
    chosen = [mismatched[1], others[5], mismatched[0], others[2]]
    found = Batcher(examples, table, LossWeights()).losses(model, torch.tensor(chosen))
    picked = [records[i] for i in chosen]
    expected = slow_losses(picked, model, table, examples.positive_weight)
    for name, value in expected.items():
        assert found.parts[name].item() == pytest.approx(value, rel=1e-4), name
    total = expected["kl"] + expected["pair"] + 0.25 * expected["bce"]
    assert found.total.item() == pytest.approx(total, rel=1e-4)


def test_sampled_rounds_teach_nothing() -> None:
    records = simulate(2, 4)
    sampled = [dataclasses.replace(r, greedy=False) for r in records]
    assert len(collect_examples(records[:3] + sampled)) == 3
    with pytest.raises(ValueError, match="no greedy round"):
        collect_examples(sampled)


def test_masked_candidates_give_finite_losses() -> None:
    records = simulate(2, 3)
    for record in records:
        record.log_probs[:, -2:] = -float("inf")
        record.target_logits[:, -2:] = -float("inf")
    found = Batcher(collect_examples(records), embedding(12), LossWeights()).losses(
        TDESModel(12, DEPTH, 8), torch.arange(len(records))
    )
    assert torch.isfinite(found.total)
