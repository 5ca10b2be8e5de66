"""Synthetic rounds, documents and states for the SABA tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from graft_sglang.budgeters.saba.cost import AffineCost, CostTable
from graft_sglang.budgeters.saba.document import SabaDocument
from graft_sglang.budgeters.saba.gain import Calibration, GainTable
from graft_sglang.contracts import (
    ComponentContext,
    DecodingState,
    DraftCandidates,
    EdgeScores,
)
from graft_sglang.traces import STAGES, RoundRecord
from graft_sglang.tree.acceptance import accept_paths
from graft_sglang.tree.best_first import BestFirstTreeBuilder

DEPTH, CANDIDATES = 6, 8
GRID = (0, 1, 2, 4, 8, 16, 32, 64)


def document(grid: tuple[int, ...] = GRID, **changes) -> SabaDocument:
    """A small but complete fit: 10 ms a round plus 0.1 ms a node."""
    budgets = np.array(grid, np.float64)
    cost = AffineCost(0.010, 0.0001, 1e-8)
    table = CostTable(
        cost,
        budgets,
        np.array([100.0, 1000.0]),
        np.stack([cost.over(budgets).seconds(prefix) for prefix in (100.0, 1000.0)]),
    )
    gains = GainTable(
        np.array([0.0, 4.0, 0.0, 0.5]),
        np.array([1.0, 2.0, 4.0]),
        budgets,
        np.log1p(budgets)[None, :] * np.array([[0.2], [0.5], [1.0]]),
    )
    calibration = Calibration(budgets, np.tile([0.0, 1.0, 0.0, 0.0], (len(grid), 1)))
    made = SabaDocument(
        target="target",
        target_fingerprint="",
        drafter="drafter",
        edge_scorer="ddtree",
        hardware="a machine",
        date="2026-01-01",
        depth=DEPTH,
        grid=grid,
        fallback_budget=16,
        state_mean=(0.5, 0.3, 2.5),
        phi=(10.0, 5.0, 2.0),
        cost=cost,
        cost_table=table,
        gain_table=gains,
        calibration=calibration,
        quality={"r2_cost": 1.0},
    )
    return replace(made, **changes)


def state(
    confidence: list[float],
    degeneration: list[float] | None = None,
    history: list[float] | None = None,
    prefix_lens: list[int] | None = None,
    seed: int = 0,
) -> DecodingState:
    """A batch with these signals and random candidates."""
    batch_size = len(confidence)
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(batch_size, DEPTH, 50, generator=generator)
    log_probs, token_ids = logits.log_softmax(-1).topk(CANDIDATES)
    candidates = DraftCandidates(
        torch.zeros(batch_size, dtype=torch.int64),
        token_ids,
        log_probs,
        torch.zeros(batch_size, DEPTH - 1),
    )
    return DecodingState(
        confidence=torch.tensor(confidence),
        degeneration=torch.tensor(degeneration or [0.3] * batch_size),
        history=torch.tensor(history or [2.0] * batch_size),
        prefix_lens=torch.tensor(prefix_lens or [200] * batch_size),
        candidates=candidates,
        scores=EdgeScores(log_probs[:, :, None, :]),
    )


def context(max_budget: int = 1024, **options) -> ComponentContext:
    return ComponentContext(DEPTH, CANDIDATES, max_budget, 50, torch.device("cpu"), options)


def recorded_rounds(
    requests: int, rounds: int, seed: int = 0, budgets: tuple[int, ...] = (64,)
) -> list[RoundRecord]:
    """Greedy requests whose target draws each next token from the drafter's own marginals.

    A round's cost is 20 ms + 0.2 ms a node + 1e-7 s a node and prefix token, without noise.
    """
    random = np.random.default_rng(seed)
    builder = BestFirstTreeBuilder()
    found: list[RoundRecord] = []
    for request in range(requests):
        prefix_len, history, root = 50 + 40 * request, [], 0
        text = random.integers(0, 50, size=rounds * (DEPTH + 2))
        at = 0
        for index in range(rounds):
            logits = torch.from_numpy(random.normal(size=(DEPTH, 50)).astype(np.float32))
            sharpness = random.uniform(0, 6)
            logits[torch.arange(DEPTH), torch.from_numpy(text[at : at + DEPTH])] += sharpness
            log_probs, token_ids = logits.log_softmax(-1).topk(CANDIDATES)
            budget = budgets[len(found) % len(budgets)]
            candidates = DraftCandidates(
                torch.tensor([root]), token_ids[None], log_probs[None], torch.zeros(1, DEPTH - 1)
            )
            scores = EdgeScores(log_probs[None, :, None, :])
            tree = builder.build(candidates, scores, torch.tensor([budget]))
            target = torch.from_numpy(text)[at + tree.depths.long()]
            paths = accept_paths(tree, target)
            length = int(paths.lengths[0])
            stages = np.zeros(len(STAGES), np.float32)
            stages[0] = 0.005
            stages[5] = 0.015 + 2e-4 * budget + 1e-7 * budget * prefix_len
            found.append(
                RoundRecord(
                    request_id=f"task{request % 2}/{request}",
                    round_index=index,
                    greedy=True,
                    prefix_len=prefix_len,
                    batch_size=1,
                    root=root,
                    token_ids=token_ids.numpy().astype(np.int32),
                    log_probs=log_probs.numpy(),
                    tree_tokens=tree.token_ids[0].numpy().astype(np.int32),
                    tree_parents=tree.parents[0].numpy(),
                    target_tokens=target[0].numpy().astype(np.int32),
                    accepted=paths.nodes[0, : length + 1].numpy().astype(np.int32),
                    target_logits=np.zeros((min(length + 1, DEPTH), CANDIDATES), np.float32),
                    confidence=float(log_probs[:, 0].exp().mean()),
                    degeneration=float(random.uniform(0, 0.5)),
                    history=float(np.mean(history[-8:])) if history else float("nan"),
                    budget=budget,
                    stage_seconds=stages,
                )
            )
            history.append(length + 1)
            at += length + 1
            prefix_len += length + 1
            root = int(text[at - 1])
    return found
