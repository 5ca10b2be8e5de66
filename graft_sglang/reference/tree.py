"""Best-first draft trees in plain Python."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def best_first_tree(
    log_probs: Sequence[Sequence[float]], budget: int
) -> list[tuple[int, int, int]]:
    """Nodes (parent, depth, rank) in pop order; node 0 is the root (depth 0) and isn't counted.

    ``log_probs[d][r]`` is the log-probability of the r-th most likely token at depth d + 1,
    descending. Every node's score is the sum along its path; the ``budget`` best are taken, so a
    smaller tree is the beginning of a larger one.
    """
    nodes = [(-1, 0, 0)]
    heap = [(-log_probs[0][0], 0, 0, 1, 0)]
    pushed = 1
    while heap and len(nodes) <= budget:
        cost, _, parent, depth, rank = heapq.heappop(heap)
        nodes.append((parent, depth, rank))
        row = log_probs[depth - 1]
        if rank + 1 < len(row):
            sibling = cost + row[rank] - row[rank + 1]
            heapq.heappush(heap, (sibling, pushed, parent, depth, rank + 1))
            pushed += 1
        if depth < len(log_probs):
            child = cost - log_probs[depth][0]
            heapq.heappush(heap, (child, pushed, len(nodes) - 1, depth + 1, 0))
            pushed += 1
    return nodes
