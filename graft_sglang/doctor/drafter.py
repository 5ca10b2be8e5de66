"""Drafter sanity: what the chain commits a round in the server and in plain transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from graft_sglang.doctor.client import Answer
from graft_sglang.doctor.findings import Finding, fail, ok, warn
from graft_sglang.reference.config import UnknownDrafter
from graft_sglang.reference.decoding import Decoded, TreeDecoder
from graft_sglang.reference.drafter import load_drafter
from graft_sglang.traces import RoundRecord, by_request

CHECK = "drafter"
NEAR_ONE = 1.15
"""A chain MAT up to which drafting is almost useless: 1 is no accepted draft token at all."""
EXACT_TOLERANCE, TOLERANCE = 0.03, 0.10
"""Largest relative difference of the two MATs: in float32, and where rounding moves drafts."""
FEWEST_ROUNDS = 20
_LOW = (
    "The drafter doesn't fit: see that it was trained for this very target (size, version, chat "
    "template), and that its target_layer_ids and mask_token_id are right."
)
_DTYPES = {"half": "float16", "float": "float32"}


@dataclass(frozen=True, slots=True)
class DraftRound:
    """A round of the chain."""

    start: int
    """Index of its first committed token among the new ones."""
    committed: int


def decode_in_transformers(
    target: str,
    drafter: str,
    answers: Sequence[Answer],
    *,
    dtype: str = "auto",
    device: str | None = None,
    trust_remote_code: bool = False,
) -> list[Decoded]:
    """The chain by a plain loop, for as many tokens as each answer has.

    Args:
        target, drafter: folders or hub names.
        dtype: as for SGLang; ``auto`` is the target's.
        device: default: CUDA where it is.

    Raises:
        UnknownDrafter: the plain implementation doesn't know this drafter or target.
    """
    from transformers import AutoModelForCausalLM

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    # The drafter first: whether it is known shows at once, and the target may be large.
    draft = load_drafter(_folder(drafter))
    model = AutoModelForCausalLM.from_pretrained(
        target,
        dtype=dtype if dtype == "auto" else getattr(torch, _DTYPES.get(dtype, dtype)),
        trust_remote_code=trust_remote_code,
    )
    model = model.to(device).eval()
    decoder = TreeDecoder(model, draft.to(device, model.dtype), candidates=1)
    return [decoder.decode(a.prompt, len(a.tokens), (), budget=0) for a in answers]


def served_rounds(
    answers: Sequence[Answer], rounds: Sequence[RoundRecord]
) -> list[list[DraftRound]]:
    """Each answer's recorded rounds; answer ``i`` has the request id ``doctor/i``."""
    requests = by_request(rounds)
    return [
        [
            DraftRound(r.prefix_len - len(answer.prompt) + 1, r.committed)
            for r in requests.get(f"doctor/{i}", [])
        ]
        for i, answer in enumerate(answers)
    ]


def loop_rounds(decoded: Decoded) -> list[DraftRound]:
    """The plain loop's rounds; token 0 is the prefill's."""
    found, start = [], 1
    for committed in decoded.committed:
        found.append(DraftRound(start, committed))
        start += committed
    return found


def check_drafter(
    answers: Sequence[Answer],
    rounds: Sequence[RoundRecord],
    decoded: Sequence[Decoded],
    block_size: int,
    exact: bool,
) -> Finding:
    """Compare the rounds that both drafted in the same text, far enough from its end.

    Where the two texts part at a near-tie, what follows can't be compared.
    """
    served: list[int] = []
    looped: list[int] = []
    for answer, mine, theirs in zip(answers, served_rounds(answers, rounds), decoded, strict=True):
        common = _common_length(answer.tokens, theirs.tokens)
        served += _whole(mine, common, block_size)
        looped += _whole(loop_rounds(theirs), common, block_size)
    mat = served_mat(answers)
    data = {"mat": mat, "rounds": sum(answer.rounds for answer in answers)}
    seen = f"chain MAT {mat:.2f} through the server ({data['rounds']} rounds)"
    if min(len(served), len(looped)) < FEWEST_ROUNDS:
        return warn(
            CHECK,
            f"{seen}; only {len(served)} and {len(looped)} rounds lie in text that plain "
            "transformers say too",
            "Run it again with --dtype float32 if that fits; see also what identity says.",
            **data,
        )
    ours, theirs_mat = _mean(served), _mean(looped)
    data |= {"served_mat_in_common_text": ours, "transformers_mat": theirs_mat}
    seen += (
        f"; in the text that both say {ours:.2f} ({len(served)} rounds), in plain transformers "
        f"{theirs_mat:.2f} ({len(looped)})"
    )
    if abs(ours / theirs_mat - 1) > (EXACT_TOLERANCE if exact else TOLERANCE):
        return fail(
            CHECK,
            seen,
            "The server drafts otherwise than the drafter was trained: report it with the --json "
            "file, and try another --attention-backend.",
            **data,
        )
    if mat < NEAR_ONE:
        return warn(CHECK, seen, _LOW, **data)
    return ok(CHECK, seen, **data)


def skipped(answers: Sequence[Answer], reason: str) -> Finding:
    """The server's own MAT, where plain transformers can't be asked."""
    mat = served_mat(answers)
    rounds = sum(answer.rounds for answer in answers)
    seen = f"chain MAT {mat:.2f} through the server ({rounds} rounds)"
    advice = _LOW if mat < NEAR_ONE else "Compare that MAT with what the drafter's authors report."
    return warn(
        CHECK, f"{seen}; comparison skipped, because {reason}", advice, mat=mat, rounds=rounds
    )


def served_mat(answers: Sequence[Answer]) -> float:
    """Mean accepted tokens a round: accepted drafts a round + 1; 1 without a round."""
    rounds = sum(answer.rounds for answer in answers)
    return 1 + sum(answer.accepted for answer in answers) / rounds if rounds else 1.0


def _folder(name: str) -> Path:
    place = Path(name).expanduser()
    if place.is_dir():
        return place
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))


def _whole(rounds: Sequence[DraftRound], common: int, block_size: int) -> list[int]:
    return [r.committed for r in rounds if r.start + block_size <= common]


def _common_length(a: Sequence[int], b: Sequence[int]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


__all__ = ["UnknownDrafter", "check_drafter", "decode_in_transformers", "skipped"]
