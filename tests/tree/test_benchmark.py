"""The benchmark runs, and the builder stays well ahead of the plain-Python reference."""

from __future__ import annotations

from graft_sglang.benchmarks.tree import as_table, measure_build, measure_expansion


def test_the_builder_is_far_faster_than_the_reference() -> None:
    """Both take turns, so a busy machine slows both; the absolute times are the benchmark's."""
    row = measure_build(512, 1, 1, repeats=400)
    assert row.speedup is not None
    assert row.speedup > 20
    assert 0 < row.median_ms <= row.p99_ms


def test_the_table_has_a_line_a_row() -> None:
    rows = [measure_build(8, 32, 2, repeats=40), measure_expansion(8, 2, repeats=40)]
    lines = as_table(rows).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("| build + masks + links | 8 | 32 | 2 |")
    assert lines[3].startswith("| FULL_MASK, prefix 512 | 8 | 1 | 2 |")
