"""Requests that a tree can't serve losslessly are answered with a 4xx; the server goes on."""

from __future__ import annotations

from typing import Any

import pytest
from prompts import prompts
from server import Server


@pytest.mark.parametrize(
    ("sampling", "body", "words"),
    [
        ({"frequency_penalty": 0.5}, {}, "frequency_penalty"),
        ({"presence_penalty": -0.5}, {}, "presence_penalty"),
        ({"repetition_penalty": 1.5}, {}, "repetition_penalty"),
        ({}, {"return_hidden_states": True}, "return_hidden_states"),
        ({}, {"custom_logit_processor": "x"}, "custom_logit_processor"),
        ({"temperature": -1.0}, {}, "temperature"),
        ({"max_new_tokens": -5}, {}, "max_new_tokens"),
        ({}, {"input_ids": [[5, 999_999]]}, "input id 999999 is outside the vocabulary"),
        ({}, {"input_ids": [[5, -1]]}, "input id -1 is outside the vocabulary"),
        ({"logit_bias": {"999999": 1.0}}, {}, "logit_bias"),
        ({"stop_token_ids": ["x"]}, {}, ""),
        ({"regex": "("}, {}, ""),
        ({}, {"input_ids": [[5] * 9_000]}, ""),
    ],
)
def test_refused_with_a_sentence(
    graft: Server, sampling: dict[str, Any], body: dict[str, Any], words: str
) -> None:
    request = {
        "input_ids": [prompts()[0]],
        "sampling_params": {"temperature": 0.0, "max_new_tokens": 4, **sampling},
        **body,
    }
    reply = graft.post("/generate", request)
    assert 400 <= reply.status_code < 500, reply.text
    assert words in reply.text
    assert len(graft.generate([prompts()[0]], 4)[0]["output_ids"]) == 4


def test_neutral_penalties_are_served(graft: Server) -> None:
    answer = graft.generate(
        [prompts()[0]], 4, frequency_penalty=0.0, presence_penalty=0, repetition_penalty=1.0
    )
    assert len(answer[0]["output_ids"]) == 4


def test_openai_penalty_is_a_400(graft: Server) -> None:
    reply = graft.post(
        "/v1/chat/completions",
        {
            "model": "default",
            "messages": [{"role": "user", "content": "Hello"}],
            "frequency_penalty": 1.0,
        },
    )
    assert reply.status_code == 400
    assert "frequency_penalty" in reply.text
