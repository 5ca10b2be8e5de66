"""The command line ``graft-sglang``: one module of ``graft_sglang.commands`` a subcommand."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys

COMMANDS = {
    "doctor": "look at the installation, and test a pair on this machine",
    "demo": "answer a few prompts with and without trees",
    "record": "record decoding rounds for training and fitting",
    "train-tdes": "train a TDES checkpoint from recorded rounds",
    "fit-saba": "fit gain and cost for SABA from recorded rounds",
    "bench": "measure one part, or compare methods",
}
"""Subcommand -> one line of help."""


def main(argv: list[str] | None = None) -> int:
    """Run a subcommand; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="graft-sglang", description="Tree speculative decoding for DFlash drafters on SGLang."
    )
    add_commands(parser, COMMANDS, "graft_sglang.commands")
    arguments = parser.parse_args(argv)
    # As Ctrl-C does, so that the servers a command has started are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return arguments.run(arguments)


def add_commands(parser: argparse.ArgumentParser, commands: dict[str, str], package: str) -> None:
    """Give ``parser`` a subcommand for each name; its module has ``add_arguments`` and ``run``.

    ``add_arguments(parser)`` may import nothing heavy; ``run(arguments)`` returns the exit code.
    """
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text in commands.items():
        module = importlib.import_module(f"{package}.{name.replace('-', '_')}")
        command = subparsers.add_parser(name, help=text, description=module.__doc__)
        command.set_defaults(run=module.run)
        module.add_arguments(command)


if __name__ == "__main__":
    sys.exit(main())
