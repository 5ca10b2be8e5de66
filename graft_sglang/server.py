"""Start an SGLang server of one's own, wait until it answers, stop it cleanly."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

LAUNCH = (sys.executable, "-m", "sglang.launch_server")


class LocalServer:
    """An SGLang server on a free loopback port; a context manager, or ``start`` and ``stop``.

    Args:
        arguments: flags of ``launch_server``, the port excepted.
        command: what starts a server, for other ways than ``launch_server``.
        environment: variables to set, beside those of this process.
        folder: working directory of the server; default: this process's.
        limit_s: seconds it may take to start.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        command: Sequence[str] = LAUNCH,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        limit_s: float = 600.0,
    ) -> None:
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [*command, *arguments, "--port", str(self.port)]
        self._environment = {**os.environ, **(environment or {})}
        self._folder = folder
        self._limit_s = limit_s

    def start(self) -> Self:
        """Start and wait until the server answers.

        Raises:
            RuntimeError: it ended or didn't answer in time; the message ends with its log.
        """
        self._log = tempfile.NamedTemporaryFile(suffix=".log", prefix="sglang-")  # noqa: SIM115
        self.process = subprocess.Popen(
            self._command,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,
            cwd=self._folder,
        )
        try:
            self._wait()
        except BaseException:  # also Ctrl-C, which this process's group gets and the server's not
            self.kill()
            raise
        return self

    def log(self) -> str:
        """Everything that the server's processes have printed."""
        return Path(self._log.name).read_text(errors="replace")

    def stop(self) -> None:
        """Ask the server to end; after 20 seconds end its whole process group."""
        try:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=20)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the server's whole process group at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _wait(self) -> None:
        deadline = time.monotonic() + self._limit_s
        while not self._answers():
            ended = self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                what = "ended while starting" if ended else f"did not start in {self._limit_s:g} s"
                raise RuntimeError(f"the server {what}; its log ends with:\n{self.log()[-4000:]}")
            time.sleep(0.5)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=10) as reply:
                return reply.status == 200
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False


def _free_port() -> int:
    """A port below those that the system gives to outgoing connections.

    A server binds half a minute after its port was chosen; one of those may be taken by then.
    """
    while True:
        port = random.randint(20_000, 30_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
