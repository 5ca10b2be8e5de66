"""The servers of the self-test: their flags, one at a time, stopped whatever happens."""

from __future__ import annotations

import urllib.error
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from graft_sglang.contracts import MAX_DEPTH
from graft_sglang.doctor.logs import useful_lines
from graft_sglang.server import LocalServer

TOKENS_IN_CACHE = 32_768
OWN_FLAGS = (
    "--model-path", "--model", "--dtype", "--device", "--port", "--speculative-algorithm",
    "--speculative-draft-model-path", "--graft-trace-dir",
)  # fmt: skip
"""Set by the self-test, so not to be given again."""


class ServerFailed(RuntimeError):
    """A server did not start, or ended while it was asked; with the log lines that say why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What is served, and how.

    Raises:
        ValueError: ``extra`` begins with no flag, or has one that the self-test sets.
    """

    target: str
    drafter: str
    dtype: str = "auto"
    device: str | None = None
    extra: tuple[str, ...] = ()
    """Further flags of ``launch_server``."""

    def __post_init__(self) -> None:
        for group in self._groups():
            name = group[0].split("=")[0]
            if not name.startswith("-"):
                raise ValueError(f"'{name}' is no server flag.")
            if name in OWN_FLAGS:
                raise ValueError(f"{name} is set by the doctor: leave it out after '--'.")

    @property
    def exact(self) -> bool:
        """Float32, where no difference is rounding. ``auto`` never is, in SGLang."""
        return self.dtype in ("float32", "float")

    @property
    def trust_remote_code(self) -> bool:
        """Whether the models' own code may be run."""
        return "--trust-remote-code" in self.extra

    def plain(self) -> list[str]:
        """Without speculation: of ``extra`` all but the ``--speculative-*`` and ``--graft-*``."""
        device = ["--device", self.device] if self.device else []
        return [
            "--model-path", self.target, "--dtype", self.dtype, *device, "--log-level", "warning",
            "--skip-server-warmup", "--sleep-on-idle", "--max-total-tokens", str(TOKENS_IN_CACHE),
            *self._extra(lambda name: not name.startswith(("--speculative-", "--graft-"))),
        ]  # fmt: skip

    def graft(self, trace_dir: str) -> list[str]:
        """With the user's own settings."""
        return [
            *self._drafting(trace_dir),
            *self._extra(lambda name: name.startswith(("--speculative-", "--graft-"))),
        ]

    def random_trees(self, trace_dir: str) -> list[str]:
        """The user's settings, but with random edge scores."""
        return [
            *self.graft(trace_dir), "--graft-import", "graft_sglang.doctor.probe",
            "--graft-edge-scorer", "doctor_random",
        ]  # fmt: skip

    def chain(self, trace_dir: str) -> list[str]:
        """DFlash's chain over the whole block: none of the user's ``--graft-*`` settings."""
        return [
            *self._drafting(trace_dir),
            *self._extra(
                lambda name: (
                    name.startswith("--speculative-") and name != "--speculative-num-draft-tokens"
                )
            ),
            "--graft-tree-builder", "chain", "--graft-edge-scorer", "ddtree",
            "--graft-budget-policy", "fixed", "--graft-budget", str(MAX_DEPTH),
            "--graft-max-budget", str(MAX_DEPTH),
        ]  # fmt: skip

    def _drafting(self, trace_dir: str) -> list[str]:
        return [
            *self.plain(), "--speculative-algorithm", "GRAFT",
            "--speculative-draft-model-path", self.drafter, "--graft-trace-dir", trace_dir,
        ]  # fmt: skip

    def _groups(self) -> list[list[str]]:
        """Each flag of ``extra`` with its values."""
        groups: list[list[str]] = []
        for argument in self.extra:
            if argument.startswith("--") or not groups:
                groups.append([argument])
            else:
                groups[-1].append(argument)
        return groups

    def _extra(self, wanted: Callable[[str], bool]) -> list[str]:
        return [argument for group in self._groups() if wanted(group[0]) for argument in group]


@contextmanager
def serving(flags: Sequence[str], limit_s: float) -> Iterator[str]:
    """A server's URL while it lives.

    Raises:
        ServerFailed: it did not start within ``limit_s`` seconds, or refused or ended in between.
    """
    server = LocalServer(flags, limit_s=limit_s)
    try:
        server.start()
    except RuntimeError as error:
        what, _, log = str(error).partition("\n")
        raise ServerFailed("; ".join([what.split(";")[0], *useful_lines(log)])) from error
    try:
        yield server.url
    except OSError as error:
        reason = str(error)
        if isinstance(error, urllib.error.HTTPError):
            reason = f"{error}: {error.read().decode(errors='replace')[:300]}"
        lines = useful_lines(server.log())
        raise ServerFailed("; ".join([f"asking it failed: {reason}", *lines])) from error
    finally:
        server.stop()
