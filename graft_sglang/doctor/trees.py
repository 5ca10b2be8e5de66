"""Random trees against ancestor chains: does each node see its own path and nothing else?

The target's token recorded at a node must be what the target says, without speculation, after the
prompt, the text so far and that node's path.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from graft_sglang.doctor.findings import Finding, fail, ok, warn
from graft_sglang.doctor.near_ties import Choice, is_near_tie
from graft_sglang.traces import RoundRecord

SAMPLE = 96
"""Nodes asked about."""
SEED = 6


@dataclass(frozen=True, slots=True)
class PathQuestion:
    """A node of a recorded tree, as a prompt for a server without speculation."""

    request: str
    round: int
    node: int
    depth: int
    nodes: int
    """Of its tree, root included."""
    accepted: bool
    """Whether the node lies on the accepted path."""
    input_ids: tuple[int, ...]
    """Prompt, text up to the root, and the path to the node."""
    said: int
    """The target's token recorded at the node."""


def path_questions(
    rounds: Sequence[RoundRecord],
    texts: Mapping[str, Sequence[int]],
    count: int = SAMPLE,
    seed: int = SEED,
) -> list[PathQuestion]:
    """A random sample of all nodes but the roots.

    Args:
        texts: prompt and answer of each request by its id; rounds of others, and those that begin
            past an answer's end, are left out.

    Raises:
        ValueError: a round's root is not the answer's token at its place.
    """
    nodes = []
    for record in rounds:
        text = texts.get(record.request_id, ())
        if record.prefix_len >= len(text):
            continue
        if text[record.prefix_len] != record.root:
            raise ValueError(
                f"round {record.round_index} of {record.request_id} has the root {record.root}, "
                f"but the answer's token there is {text[record.prefix_len]}"
            )
        nodes += [(record, node) for node in range(1, len(record.tree_tokens))]
    chosen = random.Random(seed).sample(nodes, min(count, len(nodes)))
    return [_question(record, node, texts[record.request_id]) for record, node in chosen]


def check_trees(
    questions: Sequence[PathQuestion], choices: Sequence[Choice], exact: bool
) -> Finding:
    """``FAIL`` if a node's token is another than after its path alone, near-ties excepted.

    Args:
        choices: the answers, question by question, of the server without speculation.
    """
    check = "random trees against ancestor chains"
    if not questions:
        return fail(check, "no round was recorded", "See which algorithm and scorer served.")
    differ = [
        (question, choice)
        for question, choice in zip(questions, choices, strict=True)
        if question.said != choice.token
    ]
    wrong = [(q, c) for q, c in differ if not is_near_tie(c, q.said, exact)]
    off_path = sum(not question.accepted for question in questions)
    seen = (
        f"{len(questions) - len(differ)} of {len(questions)} nodes say what their path alone does"
    )
    data = {
        "nodes": len(questions),
        "off_the_accepted_path": off_path,
        "near_ties": len(differ) - len(wrong),
        "wrong": [
            {**asdict(q), "expected": c.token, "gap_nats": c.gap(q.said), "margin_nats": c.margin}
            for q, c in wrong
        ],
    }
    if wrong:
        question, choice = wrong[0]
        return fail(
            check,
            f"{seen}; {len(wrong)} are no near-ties, first: node {question.node} of "
            f"{question.nodes} at depth {question.depth}, round {question.round} of "
            f"{question.request}: {question.said} instead of {choice.token}, "
            f"{choice.gap(question.said):.3f} nats below it",
            "The attention backend doesn't apply the tree's mask or positions: try another "
            "--attention-backend and report it with the --json file.",
            **data,
        )
    if not off_path:
        return warn(
            check,
            f"{seen}, but none lies beside the accepted path: the trees have no branches",
            "Run it again without --graft-tree-builder chain, or with a larger --graft-budget.",
            **data,
        )
    depths = [question.depth for question in questions]
    seen += f" (depths {min(depths)} to {max(depths)}, {off_path} beside the accepted path"
    return ok(check, f"{seen}, {len(differ)} near-ties)", **data)


def _question(record: RoundRecord, node: int, text: Sequence[int]) -> PathQuestion:
    path = []
    at = node
    while at > 0:
        path.append(int(record.tree_tokens[at]))
        at = int(record.tree_parents[at])
    return PathQuestion(
        request=record.request_id,
        round=record.round_index,
        node=node,
        depth=len(path),
        nodes=len(record.tree_tokens),
        accepted=node in record.accepted,
        input_ids=(*text[: record.prefix_len + 1], *reversed(path)),
        said=int(record.target_tokens[node]),
    )
