"""Methods side by side on real servers: every prompt is asked with each of them by turns.

One server decodes without speculation, one with SGLang's DFLASH, one with GRAFT, whose scorer and
policy are switched (``switch.py``). All three wait side by side and only one works at a time, so a
machine whose speed drifts slows all methods alike. No prefix is cached between requests.
"""

from __future__ import annotations

import json
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from graft_sglang.benchmarks.methods import Method
from graft_sglang.benchmarks.switch import START, VARIABLE
from graft_sglang.server import LocalServer

WARM_UP_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Pair:
    """What is served, and how."""

    target: str
    drafter: str
    dtype: str
    max_budget: int
    tdes_path: str | None = None
    saba_path: str | None = None
    server_arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt as token ids, chat template applied."""

    id: str
    task: str
    input_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """One greedy answer with one method."""

    method: str
    task: str
    prompt: str
    """Its id."""
    output_ids: tuple[int, ...]
    seconds: float
    """As the client saw it, prefill included; of its batch, where several were asked at once."""
    rounds: int
    """Verified rounds; 0 without speculation."""
    accepted: int
    """Accepted draft tokens."""
    nodes: float
    """Draft nodes a round, mean."""


class Bench:
    """The servers that the methods need, as a context manager."""

    def __init__(self, pair: Pair, methods: Sequence[Method]) -> None:
        self._pair = pair
        self._needed = sorted({method.server for method in methods})
        self._stack = ExitStack()
        self._servers: dict[str, LocalServer] = {}

    def __enter__(self) -> Self:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._switch = folder / "switch.json"
        self._write(START)
        for kind in self._needed:
            server = LocalServer(self._flags(kind), environment={VARIABLE: str(self._switch)})
            self._servers[kind] = self._stack.enter_context(server)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def ask(self, method: Method, prompts: Sequence[Asked], tokens: int) -> list[Answer]:
        """Answers to prompts sent at once."""
        if method.options is not None:
            self._write(method.options)
        url = self._servers[method.server].url
        started = time.perf_counter()
        with ThreadPoolExecutor(len(prompts)) as pool:
            replies = list(pool.map(lambda p: _generate(url, p.input_ids, tokens), prompts))
        seconds = time.perf_counter() - started
        return [
            _answer(method, prompt, reply, seconds)
            for prompt, reply in zip(prompts, replies, strict=True)
        ]

    def two_best(self, method: Method, input_ids: Sequence[int]) -> tuple[float, float]:
        """The target's two largest log-probabilities after ``input_ids``, as a server has them."""
        reply = _generate(
            self._servers[method.server].url,
            input_ids,
            1,
            return_logprob=True,
            top_logprobs_num=2,
        )
        best, second = reply["meta_info"]["output_top_logprobs"][0]
        return best[0], second[0]

    def _write(self, options: dict) -> None:
        fresh = self._switch.with_suffix(".new")
        fresh.write_text(json.dumps(options), encoding="utf-8")
        fresh.replace(self._switch)

    def _flags(self, kind: str) -> list[str]:
        pair = self._pair
        flags = [
            "--model-path", pair.target, "--dtype", pair.dtype, "--log-level", "warning",
            "--sleep-on-idle", "--disable-radix-cache", *pair.server_arguments,
        ]  # fmt: skip
        if kind == "none":
            return flags
        flags += ["--speculative-draft-model-path", pair.drafter]
        if kind == "dflash":
            return [*flags, "--speculative-algorithm", "DFLASH"]
        flags += [
            "--speculative-algorithm", "GRAFT", "--graft-import", "graft_sglang.benchmarks.switch",
            "--graft-edge-scorer", "switch", "--graft-budget-policy", "switch",
            "--graft-max-budget", str(pair.max_budget),
        ]  # fmt: skip
        if pair.tdes_path:
            flags += ["--graft-tdes-path", pair.tdes_path]
        if pair.saba_path:
            flags += ["--graft-saba-path", pair.saba_path]
        return flags


def compare(
    bench: Bench,
    methods: Sequence[Method],
    prompts: Sequence[Asked],
    tokens: int,
    concurrency: int,
    progress: Callable[[int], None],
) -> list[Answer]:
    """Every prompt with every method; who begins changes from prompt to prompt.

    Each method first answers one prompt that is not counted: it compiles and warms caches.
    """
    for method in methods:
        bench.ask(method, prompts[:1], WARM_UP_TOKENS)
    answers: list[Answer] = []
    for turn, start in enumerate(range(0, len(prompts), concurrency)):
        asked = prompts[start : start + concurrency]
        first = turn % len(methods)
        for method in (*methods[first:], *methods[:first]):
            answers += bench.ask(method, asked, tokens)
        progress(len(asked))
    return answers


def _generate(url: str, input_ids: Sequence[int], tokens: int, **fields: Any) -> dict:
    body = {
        **fields,
        "input_ids": list(input_ids),
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens},
    }
    request = urllib.request.Request(
        f"{url}/generate",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=1800) as reply:
        return json.load(reply)


def _answer(method: Method, prompt: Asked, reply: dict, seconds: float) -> Answer:
    info = reply["meta_info"]
    return Answer(
        method=method.name,
        task=prompt.task,
        prompt=prompt.id,
        output_ids=tuple(reply["output_ids"]),
        seconds=seconds,
        rounds=info.get("spec_verify_ct") or 0,
        accepted=info.get("spec_num_correct_drafts") or 0,
        nodes=info.get("spec_cap_length") or 0.0,
    )
