"""Rounds of a toy pair: the target's next token is a fixed successor of the token before it.

The candidates of every depth are the successors of the candidates of the depth before it, in an
order that says nothing about which belongs to which: only the parent decides the child.
"""

from __future__ import annotations

import numpy as np
import torch

from graft_sglang.contracts import DraftCandidates
from graft_sglang.scorers.ddtree import DDTreeScorer
from graft_sglang.traces import STAGES, RoundRecord
from graft_sglang.tree.acceptance import accept_paths
from graft_sglang.tree.best_first import BestFirstTreeBuilder

VOCABULARY = 48
DEPTH = 4
CANDIDATES = 6
BUDGET = 16


def successors(vocabulary: int = VOCABULARY) -> np.ndarray:
    """int64 [V]: one cycle through all tokens, the same in every test."""
    order = np.random.default_rng(7).permutation(vocabulary)
    following = np.empty(vocabulary, np.int64)
    following[order] = np.roll(order, -1)
    return following


def simulate(
    requests: int = 6,
    rounds: int = 12,
    seed: int = 0,
    budget: int = BUDGET,
    task: str = "toy",
    hint: float = 0.5,
) -> list[RoundRecord]:
    """Greedy rounds of some requests, verified with DDTree's trees.

    Args:
        hint: how much the drafter's logits prefer the true continuation.
    """
    rng = np.random.default_rng(seed)
    records = []
    for request in range(requests):
        root = int(rng.integers(VOCABULARY))
        prefix_len = int(rng.integers(5, 30))
        for index in range(rounds):
            record = one_round(rng, f"{task}/{request}", index, root, prefix_len, budget, hint)
            records.append(record)
            root = int(record.committed_tokens[-1])
            prefix_len += record.committed
    return records


def candidates_of(rng: np.random.Generator, root: int, hint: float) -> DraftCandidates:
    """One request's candidates: bs = 1."""
    follow = successors()
    truth = root
    others = rng.choice(VOCABULARY, CANDIDATES, replace=False)
    previous = np.unique(np.concatenate(([root], others)))[:CANDIDATES]
    if root not in previous:
        previous[0] = root
    token_ids = np.empty((DEPTH, CANDIDATES), np.int64)
    log_probs = np.empty((DEPTH, CANDIDATES), np.float32)
    for level in range(DEPTH):
        previous = follow[previous]
        truth = follow[truth]
        logits = rng.normal(size=CANDIDATES) + hint * (previous == truth)
        log_q = logits - np.log(np.exp(logits).sum()) - 0.1
        order = np.argsort(-log_q)
        previous = previous[order]
        token_ids[level], log_probs[level] = previous, log_q[order]
    return DraftCandidates(
        torch.tensor([root]),
        torch.from_numpy(token_ids)[None],
        torch.from_numpy(log_probs)[None],
        torch.zeros(1, DEPTH - 1),
    )


def one_round(
    rng: np.random.Generator,
    request_id: str,
    index: int,
    root: int,
    prefix_len: int,
    budget: int,
    hint: float,
) -> RoundRecord:
    """Draft, build with DDTree's scores, verify against the successors."""
    follow = successors()
    candidates = candidates_of(rng, root, hint)
    tree = BestFirstTreeBuilder().build(
        candidates, DDTreeScorer().score(candidates), torch.tensor([budget])
    )
    wanted = torch.from_numpy(follow[tree.token_ids.numpy()])
    path = accept_paths(tree, wanted)
    accepted = path.nodes[0, : int(path.committed[0])].numpy().astype(np.int32)
    token_ids = candidates.token_ids[0].numpy()
    logits = rng.normal(size=(min(len(accepted), DEPTH), CANDIDATES)).astype(np.float32)
    for row in range(len(logits)):
        logits[row] += 9.0 * (token_ids[row] == wanted[0, accepted[row]].item())
    return RoundRecord(
        request_id=request_id,
        round_index=index,
        greedy=True,
        prefix_len=prefix_len,
        batch_size=1,
        root=root,
        token_ids=token_ids.astype(np.int32),
        log_probs=candidates.log_probs[0].numpy(),
        tree_tokens=tree.token_ids[0].numpy().astype(np.int32),
        tree_parents=tree.parents[0].numpy(),
        target_tokens=wanted[0].numpy().astype(np.int32),
        accepted=accepted,
        target_logits=logits,
        confidence=float(candidates.top1_probs.mean()),
        degeneration=0.25,
        history=float("nan"),
        budget=budget,
        stage_seconds=rng.random(len(STAGES)).astype(np.float32),
    )


def embedding(hidden: int = 48, seed: int = 3) -> torch.Tensor:
    """float32 [V, hidden], random."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(VOCABULARY, hidden, generator=generator)
