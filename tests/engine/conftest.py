"""Fixtures of the end-to-end tests: servers, the no-speculation reference, the oracle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server import FLOAT32, GRAFT, Pool, Server

IMPORT = ("--graft-import", "graft_test_parts", "--graft-budget-policy", "scripted")


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    servers = Pool()
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def reference(pool: Pool) -> Server:
    """The same target in float32 without speculation."""
    return pool.get(*FLOAT32)


class Script:
    """What the scripted parts of a server do next."""

    def __init__(self, folder: Path) -> None:
        self.budget_file = folder / "budgets.json"
        self.oracle_file = folder / "oracle.json"
        self.budgets(16)

    def budgets(self, *nodes: int) -> None:
        self.budget_file.write_text(json.dumps(nodes))

    def oracle(self, prompts: list[list[int]], outputs: list[list[int]], rank: int = 0) -> None:
        truth = {" ".join(map(str, p)): o for p, o in zip(prompts, outputs, strict=True)}
        self.oracle_file.write_text(json.dumps({"truth": truth, "rank": rank}))

    def reset(self) -> None:
        self.budgets(16)
        self.oracle_file.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def _session_script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script"))


@pytest.fixture
def script(_session_script: Script) -> Iterator[Script]:
    _session_script.reset()
    yield _session_script
    _session_script.reset()


@pytest.fixture(scope="session")
def start(pool: Pool, _session_script: Script) -> Callable[..., Server]:
    """Start, or reuse, a GRAFT server with scripted budgets and candidates, in float32."""

    def start_server(*arguments: str, **variables: Any) -> Server:
        return pool.get(
            *FLOAT32,
            *GRAFT,
            *IMPORT,
            *arguments,
            GRAFT_TEST_BUDGETS=str(_session_script.budget_file),
            GRAFT_TEST_ORACLE=str(_session_script.oracle_file),
            **variables,
        )

    return start_server


@pytest.fixture
def graft(start: Callable[..., Server]) -> Server:
    """The server that most tests share."""
    return start()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the shared server first, whatever their file: a start costs half a minute."""
    items.sort(key=lambda item: "graft" not in getattr(item, "fixturenames", ()))
