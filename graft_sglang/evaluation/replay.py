"""Same-prefix replay: what other trees would have accepted in recorded rounds.

Greedy decoding commits the target's own tokens whatever is drafted, so the continuation of every
recorded root is known and a tree can be judged without running a model. Node order is nested:
one tree of the largest budget gives the accepted length of every smaller one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graft_sglang.contracts import DraftCandidates, EdgeScorer, TreeBuilder
from graft_sglang.traces import RoundRecord, task_of, with_continuations
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.jit import jit

_BATCH = 256
"""Rounds scored and built together."""


@dataclass(frozen=True, slots=True)
class ReplayRounds:
    """Rounds whose next D target tokens are known, so that any tree's acceptance is."""

    root: torch.Tensor
    """int64 [n]"""
    token_ids: torch.Tensor
    """int64 [n, D, K]"""
    log_probs: torch.Tensor
    """float32 [n, D, K]"""
    continuations: torch.Tensor
    """int64 [n, D]: the target's own tokens after the root."""
    request_ids: np.ndarray
    """str [n]: the cluster of each round."""

    def __len__(self) -> int:
        return len(self.root)

    @property
    def depth(self) -> int:
        """D"""
        return self.token_ids.shape[1]

    @property
    def tasks(self) -> np.ndarray:
        """str [n]"""
        return np.array([task_of(request_id) for request_id in self.request_ids])

    def select(self, chosen: np.ndarray) -> ReplayRounds:
        """The rounds of a boolean mask or of indices."""
        at = torch.from_numpy(np.arange(len(self))[chosen])
        return ReplayRounds(
            self.root[at],
            self.token_ids[at],
            self.log_probs[at],
            self.continuations[at],
            self.request_ids[chosen],
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """What trees of each budget would have done; rows are rounds, columns budgets."""

    budgets: tuple[int, ...]
    request_ids: np.ndarray
    """str [n]"""
    committed: np.ndarray
    """int64 [n, budgets]: a_t(B), accepted draft nodes + 1."""
    stopped: np.ndarray
    """bool [n, budgets]: the walk stopped before depth D."""
    mismatched: np.ndarray
    """bool [n, budgets]: it stopped at p, and the target's next token stands in the tree at the
    depth below p, under another parent."""

    def column(self, budget: int) -> int:
        """Where ``budget`` is in the arrays."""
        return self.budgets.index(budget)


def replayable(records: Iterable[RoundRecord]) -> ReplayRounds:
    """The rounds of ``with_continuations``.

    Raises:
        ValueError: no round is left.
    """
    found = with_continuations(records)
    if not found:
        raise ValueError(
            "No recorded round can be replayed: each needs greedy decoding and D more tokens."
        )
    kept = [record for record, _ in found]
    tokens = [following for _, following in found]
    return ReplayRounds(
        root=torch.tensor([record.root for record in kept]),
        token_ids=torch.from_numpy(np.stack([record.token_ids for record in kept])).long(),
        log_probs=torch.from_numpy(np.stack([record.log_probs for record in kept])),
        continuations=torch.from_numpy(np.stack(tokens)).long(),
        request_ids=np.array([record.request_id for record in kept]),
    )


def replay(
    rounds: ReplayRounds,
    scorer: EdgeScorer,
    budgets: Sequence[int],
    builder: TreeBuilder | None = None,
) -> Replay:
    """Build the largest tree of every round and walk the target's tokens through it.

    The rounds' hidden-state cosines are not recorded: scorers get zeros.

    Args:
        budgets: nodes, roots not counted.
        builder: one whose node order is nested; ``best_first`` by default.
    """
    build = (builder or BestFirstTreeBuilder()).build
    shape = (len(rounds), len(budgets))
    committed = np.empty(shape, np.int64)
    stopped, mismatched = np.empty(shape, np.bool_), np.empty(shape, np.bool_)
    wanted_budgets = np.array(budgets, np.int64)
    for start in range(0, len(rounds), _BATCH):
        at = slice(start, start + _BATCH)
        candidates = DraftCandidates(
            rounds.root[at],
            rounds.token_ids[at],
            rounds.log_probs[at],
            torch.zeros(len(rounds.root[at]), rounds.depth - 1),
        )
        largest = torch.full((len(candidates.root),), max(budgets))
        with torch.inference_mode():
            tree = build(candidates, scorer.score(candidates), largest)
        _walk(
            tree.token_ids.numpy(),
            tree.parents.numpy(),
            tree.depths.numpy(),
            tree.num_nodes.numpy(),
            rounds.continuations[at].numpy(),
            wanted_budgets,
            committed[at],
            stopped[at],
            mismatched[at],
        )
    return Replay(tuple(budgets), rounds.request_ids, committed, stopped, mismatched)


@jit
def _walk(
    tokens: Any,
    parents: Any,
    depths: Any,
    sizes: Any,
    continuations: Any,
    budgets: Any,
    committed: Any,
    stopped: Any,
    mismatched: Any,
) -> None:
    """Fill the three outputs; a path's nodes come in the order of the tree's nodes."""
    depth = continuations.shape[1]
    for b in range(len(sizes)):
        for column in range(len(budgets)):
            size = min(sizes[b], budgets[column] + 1)
            at = 0
            level = 0
            for node in range(1, size):
                if parents[b, node] == at and tokens[b, node] == continuations[b, level]:
                    at = node
                    level += 1
                    if level == depth:
                        break
            committed[b, column] = level + 1
            stopped[b, column] = level < depth
            mismatched[b, column] = False
            if level < depth:
                for node in range(1, size):
                    if depths[b, node] == level + 1 and tokens[b, node] == continuations[b, level]:
                        mismatched[b, column] = True
                        break
