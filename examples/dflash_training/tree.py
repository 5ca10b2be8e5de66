"""The longest accepted path of a tree whose target tokens are known."""

from __future__ import annotations

from collections.abc import Sequence


def accepted_nodes(nodes: Sequence[tuple[int, int, int]], ranks: Sequence[int | None]) -> list[int]:
    """Node indices of the path whose ranks are the target's tokens, as far as the tree has it.

    ``ranks[d]`` is the rank of the target's token at depth d + 1, None if it isn't a candidate.
    """
    path, at = [], 0
    for index, (parent, depth, rank) in enumerate(nodes):
        if index and parent == at and depth <= len(ranks) and ranks[depth - 1] == rank:
            path.append(index)
            at = index
    return path
