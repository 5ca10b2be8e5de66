"""Mean accepted tokens of a drafter, from the target's greedy answers and its hidden states.

Greedy decoding is lossless, so the answer is known: drafting at every position once and walking the
rounds afterwards gives the figures of all budgets without running the target again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graft_sglang.reference.drafter import DFlashDrafter
from graft_sglang.reference.tree import best_first_tree

from .fit import Teacher
from .sequences import TokenSequence
from .tree import accepted_nodes

BUDGETS = (16, 64, 128)
CANDIDATES = 32
NOVEL = 4


@dataclass
class Tally:
    """Committed tokens (accepted + 1) a round, for all rounds and for the novel ones."""

    every: list[int] = field(default_factory=list)
    novel: list[int] = field(default_factory=list)

    def add(self, committed: int, is_novel: bool) -> None:
        self.every.append(committed)
        if is_novel:
            self.novel.append(committed)

    def summary(self) -> dict[str, float]:
        """MAT and round counts."""
        return {
            "mat": sum(self.every) / max(1, len(self.every)),
            "mat_novel": sum(self.novel) / max(1, len(self.novel)),
            "rounds": len(self.every),
            "rounds_novel": len(self.novel),
        }


def novel_positions(tokens: Sequence[int]) -> list[bool]:
    """For each position, whether its next four tokens occur nowhere earlier in ``tokens``."""
    seen: set[tuple[int, ...]] = set()
    novel = []
    for at in range(len(tokens)):
        seen.add(tuple(tokens[max(0, at - NOVEL + 1) : at + 1]))
        novel.append(tuple(tokens[at + 1 : at + 1 + NOVEL]) not in seen)
    return novel


@torch.no_grad()
def draft_everywhere(
    drafter: DFlashDrafter,
    embedding: Tensor,
    head: Tensor,
    sequence: TokenSequence,
    features: Tensor,
    chunk: int = 64,
) -> tuple[Tensor, Tensor]:
    """Candidates at every response position: ids int64 and log-probs float32 [R, D, K]."""
    tokens = torch.tensor(sequence.tokens)
    anchors = torch.arange(sequence.boundary, len(sequence.tokens) - 1)
    ids, log_probs = [], []
    for part in anchors.split(chunk):
        embeds = drafter.block_embeds(embedding, tokens[part][None])
        hidden = drafter(features[None], embeds, part[None])[0, :, 1:]
        logits = (hidden @ head.T).log_softmax(-1)
        values, indices = logits.topk(CANDIDATES)
        ids.append(indices)
        log_probs.append(values)
    return torch.cat(ids), torch.cat(log_probs)


def replay_rounds(
    sequence: TokenSequence, ids: Tensor, log_probs: Tensor, tallies: dict[str, Tally]
) -> None:
    """Walk one answer with the chain and with trees of every budget, adding to ``tallies``.

    The last round of a cut answer can't show what it would have accepted beyond the cut; rounds
    that begin within a block of the end are left out unless the answer ends by itself.
    """
    tokens, depths = sequence.tokens, ids.shape[1]
    novel = novel_positions(tokens)
    cache: dict[int, tuple[list[int | None], list[int]]] = {}

    def at(position: int) -> tuple[list[int | None], list[int]]:
        if position not in cache:
            row = position - sequence.boundary
            truth = tokens[position + 1 : position + 1 + depths]
            ranks = []
            for candidates, token in zip(ids[row].tolist(), truth, strict=False):
                ranks.append(candidates.index(token) if token in candidates else None)
            nodes = best_first_tree(log_probs[row].tolist(), max(BUDGETS))
            cache[position] = ranks, accepted_nodes(nodes, ranks)
        return cache[position]

    for name, tally in tallies.items():
        position = sequence.boundary
        while position < len(tokens) - 1 - depths:
            ranks, path = at(position)
            if name == "chain":
                accepted = next((d for d, r in enumerate(ranks) if r != 0), len(ranks))
            else:
                budget = int(name.removeprefix("tree"))
                accepted = sum(node <= budget for node in path)
            tally.add(accepted + 1, novel[position])
            position += accepted + 1


def replay(
    drafter: DFlashDrafter,
    embedding: Tensor,
    head: Tensor,
    teacher: Teacher,
    indices: Sequence[int],
) -> dict[str, dict[str, float]]:
    """MAT of the chain and of trees of ``BUDGETS`` nodes over the chosen sequences."""
    tallies = {"chain": Tally()} | {f"tree{b}": Tally() for b in BUDGETS}
    for index in indices:
        sequence = teacher.sequences[index]
        if len(sequence.response) < 2:
            continue
        ids, log_probs = draft_everywhere(
            drafter, embedding, head, sequence, teacher.features(index)
        )
        replay_rounds(sequence, ids, log_probs, tallies)
    return {name: tally.summary() for name, tally in tallies.items()}
