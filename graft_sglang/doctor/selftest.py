"""The self-test on the user's own hardware: four servers, one after the other, and what they say.

GRAFT with the user's settings, with random trees and as a chain, each recording its rounds; then
the same target without speculation, which is what all of them are held against.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graft_sglang.doctor import prompts
from graft_sglang.doctor.client import Answer, ask, ask_all
from graft_sglang.doctor.drafter import check_drafter, decode_in_transformers, skipped
from graft_sglang.doctor.findings import Finding, Report, Status, fail, ok
from graft_sglang.doctor.identity import check_identity
from graft_sglang.doctor.near_ties import Choice
from graft_sglang.doctor.overhead import check_host_path, check_stages
from graft_sglang.doctor.process import check_settings, look
from graft_sglang.doctor.servers import Pair, ServerFailed, serving
from graft_sglang.doctor.trees import PathQuestion, check_trees, path_questions
from graft_sglang.traces import RoundRecord, read_rounds

TOKENS = 64
WRITTEN_WITHIN_S = 30.0
"""Seconds that the recorder may take to write the last rounds."""
_START_ADVICE = "Mend what the log names; the same flags with launch_server show the whole log."


@dataclass(frozen=True, slots=True)
class Served:
    """What one GRAFT server said and recorded."""

    answers: list[Answer]
    rounds: list[RoundRecord]
    """Of these answers only."""


def self_test(pair: Pair, report: Report, limit_s: float) -> None:
    """Run all of it, adding findings to ``report`` as they come.

    Args:
        limit_s: seconds that a server may take to start.
    """
    report.step("server arguments, resolved in a spawned process")
    with tempfile.TemporaryDirectory() as folder:
        finding = check_settings(look(pair.graft(str(Path(folder, "none")))), own_pair=True)
        report.add(finding)
        if finding.status is Status.FAIL:
            return
        asked = prompts.token_ids(pair.target, pair.trust_remote_code)
        own = _serve(report, "your settings", pair.graft, folder, asked, limit_s)
        trees = chain = None
        if own is not None:
            trees = _serve(report, "random trees", pair.random_trees, folder, asked, limit_s)
            chain = _serve(report, "chain", pair.chain, folder, asked, limit_s)
    questions = _questions(report, trees)
    expected, choices = _reference(report, pair, asked, questions, limit_s)
    if expected is not None:
        served = {"your settings": own, "random trees": trees, "chain": chain}
        for label, found in served.items():
            if found is not None:
                report.add(check_identity(label, found.answers, expected, pair.exact))
        if trees is not None:
            report.add(check_trees(questions, choices, pair.exact))
    if chain is not None:
        report.step("the chain in plain transformers")
        _drafter(report, pair, chain)
    if own is not None:
        report.step("overhead on the recorded rounds")
        report.add(check_host_path(own.rounds), check_stages(own.rounds))


def _serve(
    report: Report,
    label: str,
    flags: Callable[[str], list[str]],
    folder: str,
    asked: list[list[int]],
    limit_s: float,
) -> Served | None:
    report.step(f"a GRAFT server, {label}: {len(asked)} prompts x {TOKENS} tokens")
    traces = Path(folder, label.replace(" ", "-"))
    started = time.monotonic()
    try:
        with serving(flags(str(traces)), limit_s) as url:
            up = time.monotonic()
            answers = ask_all(url, asked, TOKENS)
            rounds = _recorded(traces, sum(answer.rounds for answer in answers))
    except ServerFailed as error:
        report.add(fail(f"server, {label}", str(error), _START_ADVICE))
        return None
    report.add(_served(label, started, up))
    return Served(answers, rounds)


def _served(label: str, started: float, up: float) -> Finding:
    seconds = {"start_s": up - started, "answers_s": time.monotonic() - up}
    seen = f"up in {seconds['start_s']:.0f} s, answered in {seconds['answers_s']:.0f} s"
    return ok(f"server, {label}", seen, **seconds)


def _recorded(folder: Path, verified: int) -> list[RoundRecord]:
    """The answers' rounds, once all are on disk."""
    deadline = time.monotonic() + WRITTEN_WITHIN_S
    while True:
        with warnings.catch_warnings():  # of a shard that is being written
            warnings.simplefilter("ignore")
            rounds = read_rounds(folder) if (folder / "meta.json").exists() else []
        rounds = [record for record in rounds if record.request_id.startswith("doctor/")]
        if len(rounds) >= verified or time.monotonic() > deadline:
            return rounds
        time.sleep(0.5)


def _questions(report: Report, trees: Served | None) -> list[PathQuestion]:
    if trees is None:
        return []
    texts = {f"doctor/{i}": (*a.prompt, *a.tokens) for i, a in enumerate(trees.answers)}
    try:
        return path_questions(trees.rounds, texts)
    except ValueError as error:
        report.add(fail("recorded rounds", str(error), "Report it with the --json file."))
        return []


def _reference(
    report: Report,
    pair: Pair,
    asked: list[list[int]],
    questions: list[PathQuestion],
    limit_s: float,
) -> tuple[list[Answer] | None, list[Choice]]:
    label = "without speculation"
    report.step(f"the same server {label}, also asked after {len(questions)} paths")
    started = time.monotonic()
    try:
        with serving(pair.plain(), limit_s) as url:
            up = time.monotonic()
            expected = ask_all(url, asked, TOKENS, explain=True)
            choices = [ask(url, q.input_ids, 1, explain=True).choices[0] for q in questions]
    except ServerFailed as error:
        report.add(fail(f"server, {label}", str(error), _START_ADVICE))
        return None, []
    report.add(_served(label, started, up))
    return expected, choices


def _drafter(report: Report, pair: Pair, chain: Served) -> None:
    try:
        decoded = decode_in_transformers(
            pair.target, pair.drafter, chain.answers, dtype=pair.dtype, device=pair.device,
            trust_remote_code=pair.trust_remote_code,
        )  # fmt: skip
    except Exception as error:  # whatever transformers can't do with these models
        report.add(skipped(chain.answers, f"{type(error).__name__}: {error}"))
        return
    block_size = chain.rounds[0].token_ids.shape[0] + 1
    report.add(check_drafter(chain.answers, chain.rounds, decoded, block_size, pair.exact))
