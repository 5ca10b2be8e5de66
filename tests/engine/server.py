"""Real SGLang servers for the tests: one process tree a configuration, reused while it lasts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests

TESTS = Path(__file__).resolve().parent
PAIR = Path(os.environ.get("GRAFT_TEST_PAIR", TESTS.parents[1] / "examples" / "tiny_pair"))
TARGET, DRAFTER = str(PAIR / "target"), str(PAIR / "drafter")

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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A running ``sglang.launch_server`` on the tiny pair."""

    def __init__(
        self, *arguments: str, command: tuple[str, ...] | None = None, **variables: str
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = tempfile.NamedTemporaryFile("w+", suffix=".log", prefix="graft-test-")  # noqa: SIM115
        command = command or (sys.executable, "-m", "sglang.launch_server")
        self.process = subprocess.Popen(
            [*command, *BASE, "--port", str(self.port), *arguments],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=environment(**variables),
            start_new_session=True,
            cwd=TESTS,
        )
        deadline = time.monotonic() + START_LIMIT_S
        while "ready to roll" not in self.log():
            if self.process.poll() is not None or time.monotonic() > deadline:
                text = self.log()[-4000:]
                self.stop()
                raise RuntimeError(f"the server did not start:\n{text}")
            time.sleep(0.5)

    def log(self) -> str:
        return Path(self._log.name).read_text(errors="replace")

    def alive(self) -> bool:
        return requests.get(self.url + "/health", timeout=30).status_code == 200

    def post(self, path: str, body: dict[str, Any]) -> requests.Response:
        return requests.post(self.url + path, json=body, timeout=300)

    def generate(self, input_ids: Any, tokens: int = 32, **parameters: Any) -> Any:
        """Greedy by default; answers of ``/generate``, a list for a list of prompts."""
        extra = {
            k: parameters.pop(k) for k in ("return_logprob", "top_logprobs_num") if k in parameters
        }
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

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()


class Pool:
    """Keeps the reference server and the last other one; more would fight over two cores."""

    def __init__(self) -> None:
        self._servers: dict[Any, Server] = {}

    def get(self, *arguments: str, **variables: str) -> Server:
        key = (arguments, tuple(sorted(variables.items())))
        if key not in self._servers:
            if key != REFERENCE:
                for other in [k for k in self._servers if k != REFERENCE]:
                    self._servers.pop(other).stop()
            self._servers[key] = Server(*arguments, **variables)
        return self._servers[key]

    def stop(self) -> None:
        for server in self._servers.values():
            server.stop()


REFERENCE = (FLOAT32, ())


def ids(answers: list[Any]) -> list[list[int]]:
    return [answer["output_ids"] for answer in answers]


def mat(answers: list[Any]) -> float:
    """Mean accepted tokens a round: accepted drafts a verification, plus one."""
    rounds = sum(a["meta_info"]["spec_verify_ct"] for a in answers)
    return 1 + sum(a["meta_info"]["spec_num_correct_drafts"] for a in answers) / rounds
