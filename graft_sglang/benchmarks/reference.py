"""The tree steps in plain Python, written from the paper's text: the slow truth.

The tests compare the Numba kernels with it node by node; the benchmark measures against it. One
request at a time, lists and dictionaries only.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class ReferenceTree:
    """One tree; lists by node, in pop order, the root first."""

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    depths: list[int] = field(default_factory=lambda: [0])
    scores: list[float] = field(default_factory=lambda: [0.0])

    def add(self, token: int, parent: int, score: float) -> int:
        """Append a node and return its index."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self.scores.append(score)
        return len(self.tokens) - 1


def best_first(
    root: int,
    token_ids: Sequence[Sequence[int]],
    values: Sequence[Sequence[Sequence[float]]],
    budget: int,
    max_depth: int,
) -> ReferenceTree:
    """DDTree's heap (Algorithm of Eq. 3), children of a parent in order of its own edge scores.

    Args:
        token_ids: [D][K]
        values: [D][P][K], P = 1 or K; row p of depth d + 1 belongs to candidate p of depth d.
    """
    tree = ReferenceTree([root])
    choices = [0]
    sorted_rows: dict[tuple[int, int], list[int]] = {}

    def children_of(depth: int, choice: int) -> tuple[Sequence[float], list[int]]:
        row = choice if depth > 0 and len(values[depth]) > 1 else 0
        edges = values[depth][row]
        if (depth, row) not in sorted_rows:
            sorted_rows[depth, row] = sorted(range(len(edges)), key=lambda k: (-edges[k], k))
        return edges, sorted_rows[depth, row]

    heap: list[tuple[float, tuple[int, ...], int]] = []

    def offer(parent: int, ranks: tuple[int, ...]) -> None:
        depth = tree.depths[parent]
        if depth >= min(max_depth, len(token_ids)):
            return
        edges, order = children_of(depth, choices[parent])
        if ranks[-1] < len(order):
            score = tree.scores[parent] + edges[order[ranks[-1]]]
            heapq.heappush(heap, (-score, ranks, parent))

    offer(0, (0,))
    while heap and len(tree.tokens) <= budget:
        negative, ranks, parent = heapq.heappop(heap)
        depth = tree.depths[parent]
        choice = children_of(depth, choices[parent])[1][ranks[-1]]
        node = tree.add(token_ids[depth][choice], parent, -negative)
        choices.append(choice)
        offer(parent, (*ranks[:-1], ranks[-1] + 1))
        offer(node, (*ranks, 0))
    return tree


def chain(
    root: int,
    token_ids: Sequence[Sequence[int]],
    values: Sequence[Sequence[Sequence[float]]],
    budget: int,
    max_depth: int,
) -> ReferenceTree:
    """The best child of the node before, at every depth (Eq. 2)."""
    tree = ReferenceTree([root])
    choice = 0
    for depth in range(min(budget, max_depth, len(token_ids))):
        edges = values[depth][choice if depth > 0 and len(values[depth]) > 1 else 0]
        choice = max(range(len(edges)), key=lambda k: (edges[k], -k))
        tree.add(token_ids[depth][choice], depth, tree.scores[depth] + edges[choice])
    return tree


def ancestors(tree: ReferenceTree, node: int) -> set[int]:
    """The node itself, its parent and so on up to the root."""
    found = {node}
    while tree.parents[node] >= 0:
        node = tree.parents[node]
        found.add(node)
    return found


def visibility(tree: ReferenceTree) -> list[list[bool]]:
    """[n][n]: whether the row's node sees the column's."""
    size = len(tree.tokens)
    rows = []
    for node in range(size):
        row = [False] * size
        for seen in ancestors(tree, node):
            row[seen] = True
        rows.append(row)
    return rows


def links(tree: ReferenceTree) -> tuple[list[int], list[int]]:
    """First child and next sibling of each node in pop order, -1 where there is none."""
    first_child = [-1] * len(tree.tokens)
    next_sibling = [-1] * len(tree.tokens)
    newest: dict[int, int] = {}
    for node in range(1, len(tree.tokens)):
        parent = tree.parents[node]
        if parent in newest:
            next_sibling[newest[parent]] = node
        else:
            first_child[parent] = node
        newest[parent] = node
    return first_child, next_sibling


def walk(tree: ReferenceTree, next_tokens: Sequence[int]) -> tuple[list[int], list[int]]:
    """Nodes of the accepted path, the root first, and the tokens that the round commits."""
    children: dict[tuple[int, int], int] = {}
    for node in range(1, len(tree.tokens)):
        children.setdefault((tree.parents[node], tree.tokens[node]), node)
    path = [0]
    committed = [next_tokens[0]]
    while (path[-1], committed[-1]) in children:
        path.append(children[path[-1], committed[-1]])
        committed.append(next_tokens[path[-1]])
    return path, committed
