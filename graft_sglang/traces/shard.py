"""A shard: some hundred rounds in one ``.npz``, rows concatenated, with offsets.

With ``R`` rounds, ``D`` depths and ``K`` candidates: columns of one value a round are [R];
``token_ids`` and ``log_probs`` are [R, D, K]; the arrays of a tree, of an accepted path and of its
logits are concatenated, round ``r`` being ``offsets[r]:offsets[r + 1]``. No pickled object.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from graft_sglang.traces.record import RoundRecord

SHARD_PATTERN = "rounds-[0-9]*-[0-9]*.npz"

UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
"""What reading a truncated or damaged shard can raise."""

_SCALARS = {
    "round_index": np.int32,
    "greedy": np.bool_,
    "prefix_len": np.int64,
    "batch_size": np.int32,
    "root": np.int32,
    "confidence": np.float64,
    "degeneration": np.float64,
    "history": np.float64,
    "budget": np.int32,
}
_STACKED = {"token_ids": np.int32, "log_probs": np.float32, "stage_seconds": np.float32}
_CONCATENATED = {
    "tree_tokens": np.int32,
    "tree_parents": np.int32,
    "target_tokens": np.int32,
    "accepted": np.int32,
    "target_logits": np.float32,
}
_ON_DISK = {"tree_parents": np.int16, "accepted": np.int16}
"""Node indices fit in 16 bits: a tree has at most 1025 nodes."""


def write_shard(path: Path, records: Sequence[RoundRecord]) -> int:
    """Write the rounds under a temporary name, then rename; returns the bytes written."""
    columns: dict[str, np.ndarray] = {"request_id": np.array([r.request_id for r in records])}
    for name, dtype in _SCALARS.items():
        columns[name] = np.array([getattr(r, name) for r in records], dtype)
    for name, dtype in _STACKED.items():
        columns[name] = np.stack([getattr(r, name) for r in records]).astype(dtype, copy=False)
    for name, dtype in _CONCATENATED.items():
        parts = [getattr(r, name) for r in records]
        columns[name] = np.concatenate(parts).astype(_ON_DISK.get(name, dtype), copy=False)
        columns[f"{name}_offsets"] = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as stream:
        np.savez_compressed(stream, **columns)  # type: ignore[arg-type]
    size = temporary.stat().st_size
    os.replace(temporary, path)
    return size


def read_shard(path: Path) -> list[RoundRecord]:
    """The rounds of a shard; their arrays are views into the shard's.

    Raises:
        One of ``UNREADABLE``: the file is truncated, damaged or not a shard.
    """
    with np.load(path, allow_pickle=False) as columns:
        ids = columns["request_id"].tolist()
        scalars = {name: columns[name].tolist() for name in _SCALARS}
        arrays: dict[str, Sequence[np.ndarray]] = {n: columns[n] for n in _STACKED}
        for name, dtype in _CONCATENATED.items():
            whole, ends = columns[name].astype(dtype), columns[f"{name}_offsets"]
            arrays[name] = [whole[a:b] for a, b in pairwise(ends.tolist())]
    columns_read: dict[str, Sequence[Any]] = {"request_id": ids, **scalars, **arrays}
    if len({len(column) for column in columns_read.values()}) != 1:
        raise ValueError("columns of different lengths")
    return [
        RoundRecord(**{name: column[r] for name, column in columns_read.items()})
        for r in range(len(ids))
    ]
