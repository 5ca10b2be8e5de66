"""The layouts in plain numpy, from the ancestor words: what the other backends must equal."""

from __future__ import annotations

import numpy as np
import torch

from graft_sglang.contracts import DraftTree
from graft_sglang.tree.masks.lengths import check_lengths


def query_only_mask(tree: DraftTree) -> torch.Tensor:
    """bool [bs, N, N]: visibility among the nodes alone."""
    words = tree.ancestors.numpy().view(np.uint8)
    columns = tree.parents.shape[1]
    bits = np.unpackbits(words, axis=-1, bitorder="little")[..., :columns].astype(bool)
    nodes = np.arange(columns)
    padding = nodes >= tree.num_nodes.numpy()[:, None]
    bits[padding] = (nodes == nodes[:, None])[np.nonzero(padding)[1]]
    return torch.from_numpy(bits)


def full_mask(tree: DraftTree, prefix_lens: torch.Tensor) -> torch.Tensor:
    """bool [sum of N * (prefix + N)]; every tree is N nodes wide.

    Raises:
        ValueError: ``prefix_lens`` of another batch.
    """
    check_lengths(len(tree.parents), prefix_lens=prefix_lens)
    blocks = [np.empty(0, bool)]
    for among, prefix in zip(query_only_mask(tree).numpy(), prefix_lens.tolist(), strict=True):
        blocks.append(np.pad(among, ((0, 0), (prefix, 0)), constant_values=True).ravel())
    return torch.from_numpy(np.concatenate(blocks))


def packed_mask(tree: DraftTree, prefix_lens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """uint8 [bytes] and int32 [bs + 1], the byte at which each request begins.

    Raises:
        ValueError: ``prefix_lens`` of another batch.
    """
    columns = tree.parents.shape[1]
    flat = full_mask(tree, prefix_lens).numpy()
    ends = np.cumsum([columns * (prefix + columns) for prefix in prefix_lens.tolist()])
    segments = np.split(flat, ends[:-1]) if len(ends) else []
    packed = [np.packbits(segment, bitorder="little") for segment in segments]
    starts = np.cumsum([0, *map(len, packed)], dtype=np.int32)
    joined = np.concatenate([np.empty(0, np.uint8), *packed])
    return torch.from_numpy(joined), torch.from_numpy(starts)
