"""Host time of scoring a round's edges with TDES, beside DDTree's scores."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--json``, ``--repeats``, ``--vocabulary``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--repeats", type=int, default=1000, metavar="N", help="default: 1000")
    parser.add_argument(
        "--vocabulary", type=int, default=49152, metavar="V", help="default: 49152 (SmolLM2)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, and write JSON where asked."""
    from graft_sglang.benchmarks.tdes_speed import report

    report(arguments.vocabulary, arguments.repeats, arguments.json)
    return 0
