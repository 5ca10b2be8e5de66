"""Measure one part, or compare methods; every figure in the docs comes from one of these."""

from __future__ import annotations

import argparse

PARTS = {
    "tdes": "TDES on recorded rounds: beta, budgets, mismatches, tasks",
    "tdes-speed": "host time of scoring edges with TDES",
    "saba": "SABA on recorded rounds: oracle tracking, best budgets",
    "overhead": "host time of a round between the two model forwards",
    "recording": "cost of recording rounds",
    "serve": "methods side by side on real servers",
    "tree": "host time of building draft trees",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One subcommand a part, each a module of this package."""
    from graft_sglang.cli import add_commands

    add_commands(parser, PARTS, __name__)


def run(arguments: argparse.Namespace) -> int:
    """Never reached by the parser: every part has its own ``run``."""
    raise SystemExit(f"graft-sglang bench: name a part of {', '.join(PARTS)}")
