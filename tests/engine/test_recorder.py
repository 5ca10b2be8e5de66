"""What a served round leaves behind with ``--graft-trace-dir``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prompts import prompts
from server import FLOAT32, GRAFT, Pool

from graft_sglang.traces import RoundRecord, by_request, continuation, read_rounds

TOKENS = 40


@pytest.fixture(scope="module")
def served(
    pool: Pool, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Any], dict[str, list[RoundRecord]]]:
    """Greedy answers, four at a time, and their rounds; one sampled request beside them."""
    folder = tmp_path_factory.mktemp("traces")
    server = pool.get(
        *FLOAT32, *GRAFT, "--graft-budget", "24", "--graft-trace-dir", str(folder),
        "--skip-server-warmup",
    )  # fmt: skip
    asked = prompts()[:4]
    answers = server.generate(asked, TOKENS, rid=[f"task/{i}" for i in range(4)])
    server.generate(asked[:1], TOKENS, rid=["warm/0"], temperature=1.0)
    deadline = time.monotonic() + 30
    while sum(map(len, by_request(_read(folder)).values())) < _rounds(answers) + 1:
        assert time.monotonic() < deadline, "the open shard was not written"
        time.sleep(0.5)
    time.sleep(3)
    return answers, by_request(_read(folder))


def _read(folder: Path) -> list[RoundRecord]:
    return read_rounds(folder) if (folder / "meta.json").exists() else []


def _rounds(answers: list[Any]) -> int:
    return sum(answer["meta_info"]["spec_verify_ct"] for answer in answers)


def test_the_rounds_of_a_request_tell_its_answer(served: Any) -> None:
    answers, requests = served
    for i, answer in enumerate(answers):
        rounds = requests[f"task/{i}"]
        # Overlap scheduling has begun one more round when a request turns out to have ended.
        assert len(rounds) - answer["meta_info"]["spec_verify_ct"] in (0, 1)
        said = [rounds[0].root, *continuation(rounds, 0).tolist()]
        assert said[: len(answer["output_ids"])] == answer["output_ids"]
        assert all(r.budget == 24 and r.greedy for r in rounds)
        assert rounds[0].prefix_len == len(prompts()[i])


def test_a_round_is_consistent_in_itself(served: Any) -> None:
    _, requests = served
    for rounds in requests.values():
        for r in rounds:
            path = r.accepted
            assert (r.tree_parents[path[1:]] == path[:-1]).all()
            assert (r.tree_tokens[path[1:]] == r.target_tokens[path[:-1]]).all()
            assert (np.diff(r.log_probs, axis=1) <= 0).all()
            assert r.target_logits.shape == (min(len(path), len(r.token_ids)), r.token_ids.shape[1])
            assert np.isfinite(r.stage_seconds).all()
            assert (r.stage_seconds > 0).all()


def test_target_logits_belong_to_the_candidates(served: Any) -> None:
    """A greedy target's token, where it is a candidate, has the highest of their logits."""
    _, requests = served
    checked = 0
    for rounds in requests.values():
        for r in (r for r in rounds if r.greedy):
            for level, node in enumerate(r.accepted[: len(r.token_ids)]):
                found = np.flatnonzero(r.token_ids[level] == r.target_tokens[node])
                if len(found):
                    checked += 1
                    assert r.target_logits[level].argmax() == found[0]
    assert checked > 50


def test_a_sampled_request_is_marked(served: Any) -> None:
    _, requests = served
    assert not any(r.greedy for r in requests["warm/0"])
