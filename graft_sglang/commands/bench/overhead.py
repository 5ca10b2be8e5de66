"""Host time between the drafter's candidates and the target's forward."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--json``, ``--repeats``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--repeats", type=int, default=2000, metavar="N", help="default: 2000")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, and write JSON where asked."""
    from graft_sglang.benchmarks.overhead import report

    report(arguments.repeats, arguments.json)
    return 0
