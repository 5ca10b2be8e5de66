"""Faults that systems like this one have had, end to end on the real engine.

"Oracle" drafts put the target's own continuation at a chosen rank of every depth.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prompts import prompts, tokenizer
from server import Server, ids, mat


def test_token_id_0_on_the_true_path(graft: Server, reference: Server, script: Any) -> None:
    """Id 0 must not be taken for padding (sglang 27509)."""
    question = prompts()[:4]
    plain: list[list[int]] = []
    request: dict[str, Any] = {}
    # As much bias towards id 0 as brings it among other tokens: that depends on the target.
    for bias in range(2, 40, 2):
        request = {"logit_bias": {"0": float(bias)}, "ignore_eos": True}
        plain = ids(reference.generate(question, 48, **request))
        if any(0 in output for output in plain):
            break
    assert any(0 in output and set(output) != {0} for output in plain)
    script.oracle(question, plain)
    answers = graft.generate(question, 48, **request)
    assert ids(answers) == plain
    assert mat(answers) > 4


def test_unequal_accept_lengths_in_one_batch(graft: Server, reference: Server, script: Any) -> None:
    """Strides and accept indices at batch > 1 (sglang 26866)."""
    question = prompts()[:4]
    plain = ids(reference.generate(question, 64))
    script.oracle(question[:1] + question[2:3], [plain[0], plain[2]])
    script.budgets(30)
    answers = graft.generate(question, 64)
    assert ids(answers) == plain
    lengths = [mat([answer]) for answer in answers]
    assert min(lengths[0], lengths[2]) > max(lengths[1], lengths[3])


def test_truth_always_at_rank_2(graft: Server, reference: Server, script: Any) -> None:
    """Accepted nodes lie scattered; they are not a dense prefix (sglang 15360)."""
    question = prompts()[:2]
    plain = ids(reference.generate(question, 200, ignore_eos=True))
    script.oracle(question, plain, rank=1)
    script.budgets(63)
    answers = graft.generate(question, 200, ignore_eos=True)
    assert ids(answers) == plain
    assert mat(answers) > 2.5


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 12])
def test_max_new_tokens_is_never_exceeded(
    graft: Server, reference: Server, script: Any, limit: int
) -> None:
    """Tokens beyond the limit must neither leak nor be drafted (sglang 31599, llama.cpp 224)."""
    question = prompts()[3:5]
    plain = ids(reference.generate(question, 64, ignore_eos=True))
    script.oracle(question, plain)
    answers = graft.generate(question, limit, ignore_eos=True)
    assert ids(answers) == [output[:limit] for output in plain]
    for answer in answers:
        meta = answer["meta_info"]
        assert meta["finish_reason"]["type"] == "length"
        if limit > 1:
            # The oracle's chain is as deep as allowed: one round commits all but the prefill's.
            assert meta["spec_verify_ct"] == 1
            assert meta["spec_num_correct_drafts"] == min(limit - 2, 11)


def test_stop_token_inside_one_accepted_run(graft: Server, reference: Server, script: Any) -> None:
    """An accepted run `a b STOP c d` ends at STOP (sglang 33758)."""
    question = prompts()[:1]
    plain = reference.generate(question, 48, ignore_eos=True)[0]["output_ids"]
    place = next(i for i in range(3, 10) if plain[i] not in plain[:i])
    script.oracle(question, [plain])
    answer = graft.generate(question, 48, stop_token_ids=[plain[place]])[0]
    assert answer["output_ids"] == plain[: place + 1]
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": plain[place]}


def test_stop_string_early_in_a_long_accepted_run(
    graft: Server, reference: Server, script: Any
) -> None:
    """A run of 12 accepted tokens with the stop text at its second is cut there (sglang 23802)."""
    question = prompts()[5:6]
    plain = reference.generate(question, 48, ignore_eos=True)[0]["output_ids"]
    text = tokenizer().decode(plain)
    pieces = [tokenizer().decode(plain[i : i + 1]) for i in range(len(plain))]
    stop = next(
        p for i, p in enumerate(pieces[2:8], 2) if p.strip() and p not in "".join(pieces[:i])
    )
    expected = reference.generate(question, 48, stop=[stop])[0]
    script.oracle(question, [plain])
    answer = graft.generate(question, 48, stop=[stop])[0]
    assert answer["text"] == expected["text"] == text[: text.index(stop)]
    assert answer["meta_info"]["finish_reason"] == expected["meta_info"]["finish_reason"]


def test_prefix_reuse_keeps_the_accept_length(graft: Server, script: Any) -> None:
    """The drafter's KV must survive a prefix hit (vllm 47930, dflash 165).

    Short answers to prompts that repeat themselves: the drafter has to read the prompt.
    """
    script.budgets(8)
    asked = [prompt * 3 for prompt in prompts()[:12]]
    first = [graft.generate([prompt], 16)[0] for prompt in asked]
    second = [graft.generate([prompt], 16)[0] for prompt in asked]
    assert all(answer["meta_info"]["cached_tokens"] > 0 for answer in second)
    assert ids(first) == ids(second)
    assert mat(second) >= 0.95 * mat(first)


def test_chunked_prefill_with_staggered_arrivals(
    start: Any, reference: Server, script: Any
) -> None:
    """Rows must not be miscounted where prefill chunks and decodes alternate (sglang 26476)."""
    long = [prompt * 6 for prompt in prompts()[:6]]
    plain = ids(reference.outputs(long, 6, tokens=40))
    server = start("--chunked-prefill-size", "64")

    def late(pair: tuple[int, list[int]]) -> Any:
        time.sleep(0.15 * pair[0])
        return server.generate(pair[1], 40)

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(late, enumerate(long)))
    assert ids(answers) == plain


def test_up_to_the_context_limit(start: Any, script: Any) -> None:
    """A full context must neither leak slots nor kill the scheduler (seen with DFLASH)."""
    server = start("--context-length", "256")
    script.budgets(200)
    prompt = (prompts()[0] * 8)[:200]
    # SGLang keeps two tokens of a context free.
    jobs = [(prompt, 54), (prompt[:150], 104), (prompt[:199], 55), (prompt[:120], 134)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda j: server.generate([j[0]], j[1], ignore_eos=True)[0], jobs))
    assert [len(output) for output in ids(answers)] == [tokens for _, tokens in jobs]
    alone = [server.generate([p], tokens, ignore_eos=True)[0] for p, tokens in jobs]
    assert ids(alone) == ids(answers)
    time.sleep(2)  # SGLang checks its pools for leaks when it is idle
    assert server.alive()


def test_retraction(start: Any, reference: Server, script: Any) -> None:
    """Requests pushed out of a full KV pool and prefilled again go on as before."""
    server = start("--max-total-tokens", "2048", "--schedule-conservativeness", "0.1")
    script.budgets(24)
    plain = ids(reference.outputs(prompts()[:6], 6, tokens=160, ignore_eos=True))
    answers = server.outputs(prompts()[:6], 6, tokens=160, ignore_eos=True)
    assert ids(answers) == plain
    assert sum(answer["meta_info"]["num_retractions"] for answer in answers) > 0


def test_page_size_16(start: Any, reference: Server, script: Any) -> None:
    """No leak with pages, prefix hits included (sglang 27789)."""
    server = start("--page-size", "16")
    script.budgets(5, 40)
    plain = ids(reference.outputs(prompts()[:8], 8, tokens=64))
    for _ in range(2):
        assert ids(server.outputs(prompts()[:8], 8, tokens=64)) == plain
    time.sleep(2)  # SGLang checks its pools for leaks when it is idle
    assert server.alive()


def test_logprobs_equal_those_without_speculation(
    graft: Server, reference: Server, script: Any
) -> None:
    """Lengths and values, top 5 included (sglang 10660, 14046)."""
    script.budgets(63)
    request = {"tokens": 32, "return_logprob": True, "top_logprobs_num": 5}
    plain = reference.generate(prompts()[:4], **request)
    trees = graft.generate(prompts()[:4], **request)
    for ours, theirs in zip(trees, plain, strict=True):
        mine, other = ours["meta_info"], theirs["meta_info"]
        assert len(mine["output_token_logprobs"]) == len(ours["output_ids"])
        for a, b in zip(mine["output_token_logprobs"], other["output_token_logprobs"], strict=True):
            assert a[1] == b[1]
            assert a[0] == pytest.approx(b[0], abs=1e-3)
        for a, b in zip(mine["output_top_logprobs"], other["output_top_logprobs"], strict=True):
            assert [x[0] for x in a] == pytest.approx([x[0] for x in b], abs=1e-3)


def test_min_new_tokens_and_logit_bias(graft: Server, reference: Server, script: Any) -> None:
    script.budgets(32)
    for parameters in ({"min_new_tokens": 40}, {"logit_bias": {"300": 4.0, "17": -5.0}}):
        plain = reference.outputs(prompts()[:8], 8, tokens=48, **parameters)
        assert ids(graft.outputs(prompts()[:8], 8, tokens=48, **parameters)) == ids(plain)


def test_grammars(graft: Server, reference: Server, script: Any) -> None:
    """Drafts that run past the grammar or outside it are never committed (sglang 15050, 24283)."""
    script.budgets(32)
    schema = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
    for parameters in ({"regex": "(ab|ba)c[0-9]{3}"}, {"json_schema": schema}):
        plain = reference.outputs(prompts()[:4], 4, tokens=24, **parameters)
        assert ids(graft.outputs(prompts()[:4], 4, tokens=24, **parameters)) == ids(plain)
    assert graft.alive()


def test_abort_and_streaming(graft: Server, script: Any) -> None:
    import requests

    body = {
        "input_ids": prompts()[0],
        "sampling_params": {"temperature": 0, "max_new_tokens": 400, "ignore_eos": True},
        "stream": True,
    }
    with requests.post(graft.url + "/generate", json=body, stream=True, timeout=60) as reply:
        lines = reply.iter_lines()
        assert next(lines).startswith(b"data:")
    plain = graft.generate([prompts()[1]], 24)
    assert len(plain[0]["output_ids"]) > 0
    assert graft.alive()
