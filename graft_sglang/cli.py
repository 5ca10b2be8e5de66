"""The command line ``graft-sglang``."""

from __future__ import annotations

import argparse
import sys


def main(argv: list[str] | None = None) -> int:
    """Run a subcommand; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="graft-sglang", description="Tree speculative decoding for DFlash drafters on SGLang."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    demo = commands.add_parser("demo", help="answer a few prompts with and without trees")
    demo.add_argument("--target", required=True, help="folder of the target model")
    demo.add_argument("--drafter", required=True, help="folder of its DFlash drafter")
    demo.add_argument("--budget", type=int, default=64, help="nodes of a tree (default 64)")
    demo.add_argument("--tokens", type=int, default=96, help="new tokens an answer (default 96)")
    demo.add_argument("--prompt", action="append", help="a prompt of your own; may be repeated")

    bench = commands.add_parser("bench", help="measure one part")
    parts = bench.add_subparsers(dest="part", required=True)
    tree = parts.add_parser("tree", help="host time of building draft trees")
    tree.add_argument("--json", metavar="FILE", help="also write the figures to FILE")

    arguments = parser.parse_args(argv)
    if arguments.command == "demo":
        from graft_sglang.demo import run

        return run(arguments)
    from graft_sglang.benchmarks.tree import main as bench_tree

    bench_tree(["--json", arguments.json] if arguments.json else [])
    return 0


if __name__ == "__main__":
    sys.exit(main())
