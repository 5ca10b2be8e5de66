"""Reads the rounds of a trace folder."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from graft_sglang.traces.meta import TraceMeta, load_meta
from graft_sglang.traces.record import RoundRecord
from graft_sglang.traces.shard import SHARD_PATTERN, UNREADABLE, read_shard


def read_meta(folder: Path | str) -> TraceMeta:
    """What the folder's rounds share.

    Raises:
        ValueError: it isn't a trace folder, or of another format version.
    """
    return load_meta(Path(folder))


def iter_rounds(folder: Path | str) -> Iterator[RoundRecord]:
    """All rounds of the finished shards, in the order of recording of each process.

    A shard that can't be read is left out with a warning; unfinished ones (``*.tmp``) are too.

    Raises:
        ValueError: it isn't a trace folder, or of another format version.
    """
    meta = read_meta(folder)
    for path in sorted(Path(folder).glob("*.npz.tmp")):
        warnings.warn(f"'{path.name}' is an unfinished shard and is left out", stacklevel=2)
    for path in sorted(Path(folder).glob(SHARD_PATTERN)):
        try:
            records = read_shard(path)
            if any(r.token_ids.shape != (meta.depth, meta.candidates) for r in records[:1]):
                raise ValueError("its D or K is not that of meta.json")
        except UNREADABLE as error:
            warnings.warn(f"'{path.name}' is damaged and is left out: {error}", stacklevel=2)
            continue
        yield from records


def read_rounds(folder: Path | str) -> list[RoundRecord]:
    """``iter_rounds`` as a list."""
    return list(iter_rounds(folder))


def read_folders(folders: Sequence[Path | str]) -> tuple[TraceMeta, list[RoundRecord]]:
    """The rounds of several folders of one target, and the first one's meta.

    Raises:
        ValueError: no folder, one that isn't a trace folder, or folders of different targets, D
            or K.
    """
    if not folders:
        raise ValueError("Name at least one trace folder.")
    first = read_meta(folders[0])
    records: list[RoundRecord] = []
    for folder in folders:
        conflict = first.conflict(read_meta(folder))
        if conflict:
            raise ValueError(f"'{folders[0]}' and '{folder}' don't go together: {conflict}.")
        records.extend(iter_rounds(folder))
    return first, records
