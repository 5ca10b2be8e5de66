"""What a check found, and all findings together as text, as JSON and as an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    """GRAFT serves, but something is not as it should be or couldn't be looked at."""
    FAIL = "FAIL"
    """GRAFT doesn't serve, or serves wrong tokens."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Raises:
        ValueError: ``ok`` with advice, or another status without.
    """

    check: str
    """What was looked at."""
    status: Status
    seen: str
    advice: str = ""
    """One sentence on what to do."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Figures behind ``seen``, for JSON."""

    def __post_init__(self) -> None:
        if bool(self.advice) == (self.status is Status.OK):
            raise ValueError("a finding has advice exactly when it is not ok")

    @property
    def text(self) -> str:
        """``status  check: seen``, and the advice on a line of its own."""
        line = f"{self.status:<5} {self.check}: {self.seen}"
        return f"{line}\n      -> {self.advice}" if self.advice else line


def ok(check: str, seen: str, **data: Any) -> Finding:
    """As it should be."""
    return Finding(check, Status.OK, seen, data=data)


def warn(check: str, seen: str, advice: str, **data: Any) -> Finding:
    """Not as it should be, but GRAFT serves."""
    return Finding(check, Status.WARN, seen, advice, data)


def fail(check: str, seen: str, advice: str, **data: Any) -> Finding:
    """GRAFT doesn't serve, or serves wrong tokens."""
    return Finding(check, Status.FAIL, seen, advice, data)


class Report:
    """Collects findings and says each as it comes.

    Args:
        say: called with every line, progress lines included.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.findings: list[Finding] = []

    def step(self, text: str) -> None:
        """Say what begins now: it may take minutes."""
        self._say(f"..... {text}")

    def add(self, *findings: Finding) -> None:
        """Keep and say them."""
        for finding in findings:
            self.findings.append(finding)
            self._say(finding.text)

    def extend(self, findings: Iterable[Finding]) -> None:
        """``add`` for a collection."""
        self.add(*findings)

    @property
    def failed(self) -> bool:
        """Whether anything failed."""
        return any(finding.status is Status.FAIL for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """0 if nothing failed, else 1."""
        return int(self.failed)

    @property
    def summary(self) -> str:
        """Counts by status, in one line."""
        counts = self._counts()
        return ", ".join(f"{counts[status]} {status}" for status in Status)

    def document(self, machine: str) -> dict[str, Any]:
        """All findings for JSON, with the machine's name and the date."""
        return {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "machine": machine,
            "exit_code": self.exit_code,
            "counts": {str(status): count for status, count in self._counts().items()},
            "findings": [
                {
                    "check": finding.check,
                    "status": str(finding.status),
                    "seen": finding.seen,
                    "advice": finding.advice,
                    "data": dict(finding.data),
                }
                for finding in self.findings
            ],
        }

    def _counts(self) -> dict[Status, int]:
        return {s: sum(f.status is s for f in self.findings) for s in Status}
