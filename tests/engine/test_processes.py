"""The plugin is there in every process, however SGLang is started (sglang 23991)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from prompts import prompts
from server import DRAFTER, FLOAT32, GRAFT, TARGET, Server, environment, ids

SMALL = (*FLOAT32, *GRAFT, "--graft-budget", "16")


@pytest.fixture(scope="module")
def expected(reference: Server) -> list[list[int]]:
    return ids(reference.generate(prompts()[:2], 24))


def test_sglang_serve(expected: Any) -> None:
    server = Server(*SMALL, command=(str(Path(sys.executable).with_name("sglang")), "serve"))
    try:
        assert ids(server.generate(prompts()[:2], 24)) == expected
    finally:
        server.stop()


def test_several_tokenizer_workers(expected: Any) -> None:
    """SGLang loads plugins in every process but these; a penalty must still be refused."""
    server = Server(*SMALL, "--tokenizer-worker-num", "2")
    try:
        assert ids(server.generate(prompts()[:2], 24)) == expected
        body = {"text": "Hi", "sampling_params": {"frequency_penalty": 1.0}}
        replies = [server.post("/generate", body).status_code for _ in range(8)]
        assert replies == [400] * 8
    finally:
        server.stop()


def test_engine_with_the_environment_variable(expected: Any) -> None:
    code = f"""
import json, sys
import sglang
if __name__ == "__main__":
    engine = sglang.Engine(
        model_path={TARGET!r}, speculative_algorithm="GRAFT",
        speculative_draft_model_path={DRAFTER!r}, device="cpu", dtype="float32",
        mem_fraction_static=0.3, max_total_tokens=40000, log_level="error",
    )
    out = engine.generate(
        input_ids={prompts()[:2]!r}, sampling_params={{"temperature": 0, "max_new_tokens": 24}}
    )
    print("ANSWER", json.dumps([[o["output_ids"], o["meta_info"]["spec_cap_length"]] for o in out]))
    engine.shutdown()
"""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "engine_script.py"
        script.write_text(code)
        result = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            env=environment(GRAFT_CONFIG='{"budget": 9}'),
            timeout=300,
            check=False,
        )
    line = next(x for x in result.stdout.splitlines() if x.startswith("ANSWER"))
    answers = json.loads(line.removeprefix("ANSWER"))
    assert [answer[0] for answer in answers] == expected
    assert all(1 < answer[1] <= 9 for answer in answers)
