"""Greedy requests to a server's ``/generate``."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from graft_sglang.doctor.near_ties import Choice

TIMEOUT_S = 900
ALTERNATIVES = 4
"""Most probable tokens asked for at each position."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One greedy answer."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    rounds: int
    """Verified rounds; 0 without speculation."""
    accepted: int
    """Accepted draft tokens."""
    choices: tuple[Choice, ...] = ()
    """One a token, where they were asked for."""


def ask(
    url: str, prompt: Sequence[int], tokens: int, *, name: str | None = None, explain: bool = False
) -> Answer:
    """One answer.

    Args:
        tokens: at most so many new ones.
        name: the request's id.
        explain: also return the choices.

    Raises:
        OSError: the server refused or is gone.
    """
    body: dict = {
        "input_ids": list(prompt),
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens},
    }
    if name is not None:
        body["rid"] = name
    if explain:
        body |= {"return_logprob": True, "top_logprobs_num": ALTERNATIVES}
    request = urllib.request.Request(
        f"{url}/generate",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
        return read_answer(tuple(prompt), json.load(reply))


def read_answer(prompt: tuple[int, ...], reply: dict) -> Answer:
    """The fields of a reply of ``/generate``."""
    info, tokens = reply["meta_info"], tuple(reply["output_ids"])
    tops = info.get("output_top_logprobs") or []
    return Answer(
        prompt=prompt,
        tokens=tokens,
        rounds=info.get("spec_verify_ct") or 0,
        accepted=info.get("spec_num_correct_drafts") or 0,
        choices=tuple(
            Choice(token, {int(other): float(log_prob) for log_prob, other, *_ in top})
            for token, top in zip(tokens, tops, strict=False)
        ),
    )


def ask_all(
    url: str, prompts: Sequence[Sequence[int]], tokens: int, *, explain: bool = False
) -> list[Answer]:
    """The first half of the prompts at once, the others one by one: ids ``doctor/0`` and so on."""
    half = len(prompts) // 2

    def one(index: int) -> Answer:
        return ask(url, prompts[index], tokens, name=f"doctor/{index}", explain=explain)

    with ThreadPoolExecutor(max(1, half)) as pool:
        together = list(pool.map(one, range(half)))
    return together + [one(index) for index in range(half, len(prompts))]
