"""Shards: what is written comes back; kills, bounds, restarts and damage lose what they may."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from synthetic_rounds import CANDIDATES, DEPTH, simulate

import graft_sglang.traces.writer as writer_module
from graft_sglang.traces import RoundRecord, TraceMeta, TraceWriter, read_meta, read_rounds
from graft_sglang.traces.shard import SHARD_PATTERN

META = TraceMeta("f00d", DEPTH, CANDIDATES, "toy-drafter", "2026-01-01")


def assert_same(left: list[RoundRecord], right: list[RoundRecord]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        for field in dataclasses.fields(RoundRecord):
            mine, theirs = getattr(a, field.name), getattr(b, field.name)
            if isinstance(mine, np.ndarray):
                assert mine.dtype == theirs.dtype, field.name
            np.testing.assert_array_equal(mine, theirs, err_msg=field.name)


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob(SHARD_PATTERN))


def test_rounds_come_back_as_they_were(tmp_path: Path) -> None:
    records = simulate()
    writer = TraceWriter(tmp_path / "traces", META, rounds_per_shard=25)
    for record in records:
        writer.put(record)
    writer.close()
    assert len(shards(tmp_path / "traces")) == 3
    assert writer.written == len(records) == 72
    assert writer.dropped == 0
    assert_same(read_rounds(tmp_path / "traces"), records)
    assert read_meta(tmp_path / "traces") == META


def test_a_round_takes_about_four_kilobytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    base = simulate(1, 1)[0]
    n = 65
    records = [
        dataclasses.replace(
            base,
            token_ids=rng.integers(49152, size=(15, 32)).astype(np.int32),
            log_probs=rng.normal(size=(15, 32)).astype(np.float32),
            tree_tokens=rng.integers(49152, size=n).astype(np.int32),
            tree_parents=np.arange(-1, n - 1, dtype=np.int32),
            target_tokens=rng.integers(49152, size=n).astype(np.int32),
            accepted=np.arange(3, dtype=np.int32),
            target_logits=rng.normal(size=(3, 32)).astype(np.float32),
        )
        for _ in range(256)
    ]
    writer = TraceWriter(tmp_path, dataclasses.replace(META, depth=15, candidates=32))
    for record in records:
        writer.put(record)
    writer.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) / 256 < 4500


def test_a_restart_adds_shards(tmp_path: Path) -> None:
    records = simulate()
    for part in (records[:30], records[30:]):
        writer = TraceWriter(tmp_path, META, rounds_per_shard=20)
        for record in part:
            writer.put(record)
        writer.close()
    assert len(shards(tmp_path)) == 2 + 3
    assert_same(read_rounds(tmp_path), records)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target_fingerprint": "beef"}, "fingerprint is f00d, not beef"),
        ({"depth": DEPTH + 1}, "depth D is 4, not 5"),
        ({"candidates": 3}, "candidates K is 6, not 3"),
    ],
)
def test_a_folder_of_another_recording_is_refused(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    TraceWriter(tmp_path, META).close()
    with pytest.raises(ValueError, match=words):
        TraceWriter(tmp_path, dataclasses.replace(META, **changes))  # type: ignore[arg-type]


def test_rounds_of_other_shapes_are_refused(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, dataclasses.replace(META, candidates=9))
    with pytest.raises(ValueError, match=r"must be \[4, 9\], not \[4, 6\]"):
        writer.put(simulate(1, 1)[0])
    writer.close()


def test_the_folder_stays_below_its_bound(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = simulate(20, 20)
    bound = 30_000
    writer = TraceWriter(tmp_path, META, rounds_per_shard=20, max_bytes=bound)
    with caplog.at_level(logging.WARNING):
        for record in records:
            writer.put(record)
        writer.close()
    sizes = [path.stat().st_size for path in shards(tmp_path)]
    assert bound <= sum(sizes) + (tmp_path / "meta.json").stat().st_size < bound + max(sizes)
    assert 0 < writer.written < len(records)
    assert caplog.text.count("GRAFT stops recording") == 1
    assert_same(read_rounds(tmp_path), records[: writer.written])


def test_a_full_queue_drops_rounds_instead_of_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = writer_module.write_shard

    def slow(path: Path, records: list[RoundRecord]) -> int:
        time.sleep(0.5)
        return real(path, records)

    monkeypatch.setattr(writer_module, "write_shard", slow)
    records = simulate()
    writer = TraceWriter(tmp_path, META, rounds_per_shard=1, queued_rounds=3)
    started = time.monotonic()
    for record in records[:20]:
        writer.put(record)
    assert time.monotonic() - started < 0.4
    writer.close()
    assert writer.dropped >= 15
    assert writer.written == 20 - writer.dropped == len(read_rounds(tmp_path))


def test_a_failing_disk_stops_the_recording_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(path: Path, records: list[RoundRecord]) -> int:
        raise OSError("no space left")

    monkeypatch.setattr(writer_module, "write_shard", fail)
    writer = TraceWriter(tmp_path, META, rounds_per_shard=2)
    for record in simulate():
        writer.put(record)
    writer.close()
    assert not writer.recording
    assert caplog.text.count("no space left") == 1


def test_an_idle_writer_finishes_its_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "IDLE_SECONDS", 0.1)
    writer = TraceWriter(tmp_path, META)
    writer.put(simulate(1, 1)[0])
    deadline = time.monotonic() + 10
    while not shards(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(read_rounds(tmp_path)) == 1
    writer.close()


_KILLED = """
import sys, time
sys.path.insert(0, sys.argv[2])
from synthetic_rounds import simulate
from test_storage import META
from graft_sglang.traces import TraceWriter
writer = TraceWriter(sys.argv[1], META, rounds_per_shard=10)
for record in simulate(5, 7):
    writer.put(record)
while writer.written < 30:
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(60)
"""


def test_a_killed_process_loses_the_open_shard_only(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path), str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    found = read_rounds(tmp_path)
    assert len(found) >= 30
    assert_same(found, simulate(5, 7)[: len(found)])


def test_damaged_and_unfinished_shards_are_left_out(tmp_path: Path) -> None:
    records = simulate(5, 10)
    writer = TraceWriter(tmp_path, META, rounds_per_shard=10)
    for record in records:
        writer.put(record)
    writer.close()
    paths = shards(tmp_path)
    paths[1].write_bytes(paths[1].read_bytes()[:-400])
    damaged = bytearray(paths[2].read_bytes())
    damaged[len(damaged) // 3] ^= 0xFF
    paths[2].write_bytes(damaged)
    paths[3].rename(paths[3].with_name(f"{paths[3].name}.tmp"))
    with pytest.warns(UserWarning, match="left out") as warned:
        found = read_rounds(tmp_path)
    assert len([w for w in warned if "left out" in str(w.message)]) == 3
    assert_same(found, records[:10] + records[40:])


def test_a_folder_without_meta_is_no_trace_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no meta\.json"):
        read_rounds(tmp_path)
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(ValueError, match="not readable JSON"):
        read_rounds(tmp_path)
