"""Start an SGLang server of one's own, wait until it answers, stop it cleanly."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType


class LocalServer:
    """``python -m sglang.launch_server`` on a free loopback port, as a context manager.

    Args:
        arguments: flags of ``launch_server``, the port excepted.
        limit_s: seconds it may take to start.

    Raises:
        RuntimeError: the server ended or didn't answer in time; the message ends with its log.
    """

    def __init__(self, arguments: list[str], limit_s: float = 600.0) -> None:
        self._arguments = arguments
        self._limit_s = limit_s

    def __enter__(self) -> LocalServer:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._log = tempfile.NamedTemporaryFile(suffix=".log")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", "--port", str(port), *self._arguments],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = time.monotonic() + self._limit_s
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = Path(self._log.name).read_text(errors="replace")[-4000:]
                self.stop()
                raise RuntimeError(f"the server did not start; its log ends with:\n{log}")
            time.sleep(0.5)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask the server to end; after 20 seconds end its whole process group."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=20)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=10) as reply:
                return reply.status == 200
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False
