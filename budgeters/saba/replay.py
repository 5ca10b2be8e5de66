"""Nested same-prefix replay: a(B) of a recorded round for every budget, from one large tree.

The tree of budget B is the first B nodes of any larger one, and the target's continuation is
recorded, so walking it down the largest tree tells what every budget would have committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from graft_sglang.budgeters.saba.path_mass import expected_tokens
from graft_sglang.contracts import DecodingState, DraftCandidates, DraftTree, EdgeScorer
from graft_sglang.traces import RoundRecord, with_continuations
from graft_sglang.tree.best_first import BestFirstTreeBuilder


@dataclass(frozen=True, slots=True)
class Replay:
    """Rounds replayed at ``m`` budgets."""

    records: list[RoundRecord]
    budgets: np.ndarray
    """int64 [m], rising."""
    states: np.ndarray
    """float64 [n, 3]: [conf, degen, hist], hist NaN where a request had no history."""
    committed: np.ndarray
    """int64 [n, m]: a(B), accepted draft tokens + 1."""
    expected: np.ndarray
    """float64 [n, m]: e(B), the summed path probabilities of the first B nodes."""

    def with_history(self, mean_history: float) -> np.ndarray:
        """``states`` with ``mean_history`` where there was none, float64 [n, 3]."""
        filled = self.states.copy()
        filled[np.isnan(filled[:, 2]), 2] = mean_history
        return filled

    def subset(self, rows: np.ndarray) -> Replay:
        """The rounds of ``rows`` (int64 or bool [n])."""
        indices = np.arange(len(self.records))[rows]
        return replace(
            self,
            records=[self.records[i] for i in indices],
            states=self.states[indices],
            committed=self.committed[indices],
            expected=self.expected[indices],
        )


def replay(
    rounds: Iterable[RoundRecord],
    scorer: EdgeScorer,
    budgets: Sequence[int],
    progress: Callable[[Sequence[RoundRecord]], Iterable[RoundRecord]] = iter,
) -> Replay:
    """Replay every greedy round whose next D tokens are recorded.

    Rounds nearer to the end of their request are left out: how deep they would have been
    followed is not known.

    Raises:
        ValueError: no round has D further tokens.
    """
    usable = with_continuations(rounds)
    if not usable:
        raise ValueError(
            "No recorded round can be replayed: it must be greedy, and as many further tokens of "
            "its request recorded as the drafter has depths."
        )
    grid = np.array(sorted(set(budgets)), np.int64)
    builder = BestFirstTreeBuilder()
    top = torch.tensor([int(grid[-1])])
    committed = np.empty((len(usable), len(grid)), np.int64)
    expected = np.empty((len(usable), len(grid)))
    records = [record for record, _ in usable]
    for row, record in enumerate(progress(records)):
        candidates = candidates_of(record)
        tree = builder.build(candidates, scorer.score(candidates), top)
        path = walk(tree, usable[row][1])
        committed[row] = 1 + np.searchsorted(path, grid, side="right")
        expected[row] = expected_tokens(tree, grid)[0]
    states = np.array([[r.confidence, r.degeneration, r.history] for r in records], np.float64)
    return Replay(records, grid, states, committed, expected)


def candidates_of(record: RoundRecord) -> DraftCandidates:
    """The round's candidates as a batch of one; the hidden cosines, not recorded, are 0."""
    depth = len(record.token_ids)
    return DraftCandidates(
        root=torch.tensor([record.root], dtype=torch.int64),
        token_ids=torch.from_numpy(record.token_ids.astype(np.int64))[None],
        log_probs=torch.from_numpy(record.log_probs.astype(np.float32))[None],
        hidden_cosines=torch.zeros(1, depth - 1),
    )


def state_of(record: RoundRecord, scorer: EdgeScorer) -> DecodingState:
    """What a policy saw of the round, as a batch of one."""
    candidates = candidates_of(record)
    return DecodingState(
        confidence=torch.tensor([record.confidence], dtype=torch.float32),
        degeneration=torch.tensor([record.degeneration], dtype=torch.float32),
        history=torch.tensor([record.history], dtype=torch.float32),
        prefix_lens=torch.tensor([record.prefix_len], dtype=torch.int64),
        candidates=candidates,
        scores=scorer.score(candidates),
    )


def walk(tree: DraftTree, tokens_ahead: np.ndarray) -> np.ndarray:
    """Nodes of a tree (batch of one) on the target's path, the root left out, rising."""
    tokens = tree.token_ids[0].tolist()
    first_child = tree.first_child[0].tolist()
    next_sibling = tree.next_sibling[0].tolist()
    path: list[int] = []
    node = 0
    for token in tokens_ahead.tolist():
        child = first_child[node]
        while child >= 0 and tokens[child] != token:
            child = next_sibling[child]
        if child < 0:
            break
        path.append(child)
        node = child
    return np.array(path, np.int64)
