"""Real SGLang servers for the tests: one process tree a configuration, reused while it lasts."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests

from graft_sglang.server import LAUNCH, LocalServer

TESTS = Path(__file__).resolve().parent
PAIR = Path(os.environ.get("GRAFT_TEST_PAIR", TESTS.parents[1] / "examples" / "tiny_pair"))
TARGET, DRAFTER = str(PAIR / "target"), str(PAIR / "drafter")
TDES, SABA = str(PAIR / "tdes"), str(PAIR / "saba.json")

BASE = (
    "--model-path", TARGET, "--device", "cpu", "--mem-fraction-static", "0.3",
    "--max-total-tokens", "40000", "--max-running-requests", "48", "--sleep-on-idle",
)  # fmt: skip
GRAFT = ("--speculative-algorithm", "GRAFT", "--speculative-draft-model-path", DRAFTER)
DFLASH = ("--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", DRAFTER)
FLOAT32 = ("--dtype", "float32")
START_LIMIT_S = 300


def environment(**extra: str) -> dict[str, str]:
    """The environment of a test server: one thread, and the test parts importable."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": os.pathsep.join([str(TESTS), *os.environ.get("PYTHONPATH", "").split()]),
        "HF_HUB_OFFLINE": "1",
        **extra,
    }


class Server(LocalServer):
    """A running server on the tiny pair."""

    def __init__(
        self, *arguments: str, command: tuple[str, ...] = LAUNCH, **variables: str
    ) -> None:
        super().__init__(
            [*BASE, *arguments],
            command=command,
            environment=environment(**variables),
            folder=TESTS,
            limit_s=START_LIMIT_S,
        )
        self.start()

    def alive(self) -> bool:
        return requests.get(self.url + "/health", timeout=30).status_code == 200

    def post(self, path: str, body: dict[str, Any]) -> requests.Response:
        return requests.post(self.url + path, json=body, timeout=300)

    def generate(self, input_ids: Any, tokens: int = 32, **parameters: Any) -> Any:
        """Greedy by default; answers of ``/generate``, a list for a list of prompts."""
        fields = ("return_logprob", "top_logprobs_num", "rid")
        extra = {k: parameters.pop(k) for k in fields if k in parameters}
        sampling = {"temperature": 0.0, "max_new_tokens": tokens, **parameters}
        reply = self.post(
            "/generate", {"input_ids": input_ids, "sampling_params": sampling, **extra}
        )
        assert reply.status_code == 200, reply.text
        return reply.json()

    def outputs(self, prompts: list[list[int]], batch: int, **parameters: Any) -> list[Any]:
        """One request a prompt, ``batch`` at a time."""
        with ThreadPoolExecutor(batch) as pool:
            return list(pool.map(lambda p: self.generate(p, **parameters), prompts))


class Pool:
    """Keeps the reference server and the last other one; more would fight over two cores."""

    def __init__(self) -> None:
        self._servers: dict[Any, Server] = {}

    def get(self, *arguments: str, **variables: str) -> Server:
        key = (arguments, tuple(sorted(variables.items())))
        if key not in self._servers:
            if key != REFERENCE:
                for other in [k for k in self._servers if k != REFERENCE]:
                    self._servers.pop(other).kill()
            self._servers[key] = Server(*arguments, **variables)
        return self._servers[key]

    def stop(self) -> None:
        for server in self._servers.values():
            server.kill()


REFERENCE = (FLOAT32, ())


def ids(answers: list[Any]) -> list[list[int]]:
    return [answer["output_ids"] for answer in answers]


def rounds(answers: list[Any]) -> list[int]:
    """Verifications of each answer; one that ended with the prefill's token had none."""
    return [answer["meta_info"].get("spec_verify_ct", 0) for answer in answers]


def mat(answers: list[Any]) -> float:
    """Mean accepted tokens a round: accepted drafts a verification, plus one."""
    correct = sum(answer["meta_info"].get("spec_num_correct_drafts", 0) for answer in answers)
    return 1 + correct / sum(rounds(answers))
