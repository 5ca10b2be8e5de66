"""Records rounds beside a running server: the decoding loop only puts them into a queue."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import queue
import threading
from pathlib import Path

from graft_sglang.traces.meta import META_FILE, TraceMeta, load_meta, save_meta
from graft_sglang.traces.record import RoundRecord
from graft_sglang.traces.shard import SHARD_PATTERN, write_shard

logger = logging.getLogger(__name__)

DEFAULT_MAX_BYTES = 2 << 30
IDLE_SECONDS = 2.0
"""A shard that is not full is written after so long without a new round."""


class TraceWriter:
    """Appends rounds to a folder of shards, from a thread of its own.

    A shard gets its name only when it is complete, so a killed process loses the rounds of the
    open shard and no others. Several processes may write to one folder. Once ``max_bytes`` is
    reached, or a write fails, recording stops and says so once; the server goes on.
    """

    def __init__(
        self,
        folder: Path | str,
        meta: TraceMeta,
        *,
        rounds_per_shard: int = 256,
        max_bytes: int = DEFAULT_MAX_BYTES,
        queued_rounds: int = 4096,
    ) -> None:
        """Open or continue a trace folder.

        Args:
            max_bytes: bound on the bytes of all files of the folder; a shard is written only if
                the folder was below it, so it can be passed by less than one shard.
            queued_rounds: rounds that may wait for the thread; further ones are dropped.

        Raises:
            ValueError: the folder can't be made, or holds rounds of another target, D, K or format.
        """
        self._folder = Path(folder)
        self._meta = meta
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._join_folder()
        except OSError as error:
            raise ValueError(f"Traces can't be written to '{folder}': {error}.") from error
        self._rounds_per_shard = rounds_per_shard
        self._max_bytes = max_bytes
        self._next_shard = 1 + max(
            (int(path.name.split("-")[1]) for path in self._folder.glob(SHARD_PATTERN)), default=-1
        )
        self._recording = True
        self._said_full = False
        self._closed = False
        self.written = 0
        """Rounds that are in finished shards of this writer."""
        self.dropped = 0
        """Rounds lost to a full queue."""
        # One entry more than rounds: the end mark of close() must never wait behind a full queue.
        self._queue: queue.Queue[RoundRecord | None] = queue.Queue(queued_rounds + 1)
        self._queued_rounds = queued_rounds
        self._thread = threading.Thread(target=self._run, name="graft-traces", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def recording(self) -> bool:
        """False once the writer has stopped: closed, the folder full, or a write failed."""
        return self._recording

    def put(self, record: RoundRecord) -> None:
        """Hand a round over; never waits. The record's arrays must not change afterwards.

        Raises:
            ValueError: the record's candidates are not [D, K] as in the folder's ``meta.json``.
        """
        if not self._recording:
            return
        shape = (self._meta.depth, self._meta.candidates)
        if record.token_ids.shape != shape or record.log_probs.shape != shape:
            raise ValueError(
                f"a round's candidates must be {list(shape)}, not {list(record.token_ids.shape)}"
            )
        if self._queue.qsize() >= self._queued_rounds:
            self.dropped += 1
            if self.dropped == 1:
                logger.warning("GRAFT drops rounds from the trace: the disk is too slow.")
            return
        self._queue.put_nowait(record)

    def close(self) -> None:
        """Write what is left and stop."""
        if self._closed:
            return
        self._closed = True
        self._recording = False
        atexit.unregister(self.close)
        self._queue.put(None)
        self._thread.join()

    def _join_folder(self) -> None:
        if not (self._folder / META_FILE).exists():
            save_meta(self._folder, self._meta)
            return
        found = load_meta(self._folder)
        conflict = found.conflict(self._meta)
        if conflict:
            raise ValueError(
                f"The trace folder '{self._folder}' belongs to another recording: {conflict}; "
                f"choose an empty folder."
            )
        if found.drafter != self._meta.drafter:
            logger.warning(
                "The trace folder was begun with the drafter '%s', not '%s'.",
                found.drafter,
                self._meta.drafter,
            )

    def _run(self) -> None:
        pending: list[RoundRecord] = []
        while True:
            try:
                record = self._queue.get(timeout=IDLE_SECONDS if pending else None)
            except queue.Empty:
                self._write(pending)
                pending = []
                continue
            if record is not None:
                pending.append(record)
            if record is None or len(pending) >= self._rounds_per_shard:
                self._write(pending)
                pending = []
            if record is None:
                return

    def _write(self, records: list[RoundRecord]) -> None:
        if not records or self._said_full:
            return
        try:
            if _bytes_in(self._folder) >= self._max_bytes:
                self._stop(f"the folder has reached {self._max_bytes / 2**20:.0f} MiB")
                return
            name = f"rounds-{self._next_shard:06d}-{os.getpid()}.npz"
            write_shard(self._folder / name, records)
        except Exception as error:  # whatever it is, the server must go on
            self._stop(f"writing failed: {error}")
            return
        self._next_shard += 1
        self.written += len(records)

    def _stop(self, reason: str) -> None:
        self._recording = False
        self._said_full = True
        logger.warning("GRAFT stops recording to '%s': %s.", self._folder, reason)


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.iterdir():
        # Another process may rename its temporary file in between.
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
