"""Host time of recording rounds with `--graft-trace-dir`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--json``, ``--repeats``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--repeats", type=int, default=2000, metavar="N", help="default: 2000")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, and write JSON where asked."""
    from graft_sglang.benchmarks.recording import report

    report(arguments.repeats, arguments.json)
    return 0
