"""Look at this installation; with a pair, also serve it and compare with the target itself."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The pair, where it runs, the JSON file, flags for its servers."""
    parser.add_argument("--model", metavar="T", help="target model: also run the self-test")
    parser.add_argument("--draft-model", metavar="D", help="its DFlash drafter")
    parser.add_argument("--device", help="of the servers, e.g. cpu (default: SGLang's choice)")
    parser.add_argument(
        "--dtype", default="auto",
        help="of the servers (default: auto); in float32 any difference fails",
    )  # fmt: skip
    parser.add_argument(
        "--start-limit", type=float, default=900, metavar="S",
        help="seconds a server may take to start (default 900)",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the findings there")
    parser.add_argument(
        "server_flags", nargs="*", metavar="-- FLAG", help="further flags of launch_server"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print each finding as it comes; returns 0 only if nothing failed."""
    import json

    from graft_sglang.doctor.findings import Report
    from graft_sglang.doctor.installation import check_installation
    from graft_sglang.doctor.servers import Pair
    from graft_sglang.hardware import describe

    if bool(arguments.model) != bool(arguments.draft_model):
        raise SystemExit("graft-sglang doctor: give both --model and --draft-model, or neither.")
    if arguments.server_flags and not arguments.model:
        raise SystemExit("graft-sglang doctor: server flags need --model and --draft-model.")
    pair = None
    if arguments.model:
        try:
            pair = Pair(
                arguments.model, arguments.draft_model, arguments.dtype, arguments.device,
                tuple(arguments.server_flags),
            )  # fmt: skip
        except ValueError as error:
            raise SystemExit(f"graft-sglang doctor: {error}") from error
    report = Report(lambda line: print(line, flush=True))
    try:
        check_installation(report)
        if pair is not None and not report.failed:
            from graft_sglang.doctor.selftest import self_test

            self_test(pair, report, arguments.start_limit)
    finally:
        if arguments.json:
            text = json.dumps(report.document(describe()), indent=2)
            arguments.json.write_text(text + "\n", encoding="utf-8")
    print(report.summary, flush=True)
    return report.exit_code
