"""The command line itself."""

from __future__ import annotations

import subprocess
import sys

WAITING = """
import sys, time, types
from graft_sglang import cli

def run(arguments):
    try:
        print("started", flush=True)
        time.sleep(60)
    finally:
        print("cleaned up", flush=True)

module = types.SimpleNamespace(__doc__="", run=run, add_arguments=lambda parser: None)
sys.modules["graft_sglang.commands.wait"] = module
cli.COMMANDS = {"wait": "for a signal"}
sys.exit(cli.main(["wait"]))
"""


def test_a_terminated_command_cleans_up() -> None:
    """Servers that a benchmark started must not outlive it."""
    command = [sys.executable, "-c", WAITING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.terminate()
        output, _ = process.communicate(timeout=30)
    assert output == "cleaned up\n"
    assert process.returncode == 143
