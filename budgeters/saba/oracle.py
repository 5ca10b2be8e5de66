"""How near a policy comes to the best budget of each round, on replayed rounds (Figure 6, 1c)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from graft_sglang.budgeters.saba.cost import CostModel
from graft_sglang.budgeters.saba.replay import Replay, state_of
from graft_sglang.contracts import BudgetPolicy, EdgeScorer, RoundOutcome
from graft_sglang.traces import task_of

CLOSE = 0.95
"""A round is counted as tracked from that share of its oracle throughput on."""


@dataclass(frozen=True, slots=True)
class Tracking:
    """One policy over replayed rounds."""

    name: str
    nodes: float
    """Mean budget."""
    mat: float
    """Mean tokens committed a round."""
    tokens_per_second: float
    """All tokens over all rounds' modelled time."""
    retained: np.ndarray
    """float64 [n]: TPS of the round at the policy's budget over the oracle's."""

    @property
    def mean_retained(self) -> float:
        return float(self.retained.mean())

    @property
    def share_close(self) -> float:
        """Share of rounds at 95% of the oracle or more."""
        return float((self.retained >= CLOSE).mean())


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Throughput over budgets for rounds of easy, medium and hard thirds (Figure 1c)."""

    names: tuple[str, ...]
    budgets: np.ndarray
    best: list[int]
    """Best budget of each third."""
    mat: list[float]
    """Mean a(Bmax) of each third."""
    relative_tps: np.ndarray
    """float64 [3, m]: tokens a second over the third's best."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task: the best fixed budget in hindsight beside the best policy, tokens a second."""

    task: str
    fixed: int
    fixed_tps: float
    policy: str
    policy_tps: float


def round_costs(replayed: Replay, cost: CostModel) -> np.ndarray:
    """Seconds of each round at each budget, float64 [n, m]."""
    curve = cost.over(replayed.budgets.astype(np.float64))
    return np.stack([curve.seconds(r.prefix_len) for r in replayed.records])


def policy_choices(
    policy: BudgetPolicy,
    replayed: Replay,
    costs: np.ndarray,
    scorer: EdgeScorer,
    progress: Callable[[range], Iterable[int]] = iter,
) -> np.ndarray:
    """Indices of the budgets that ``policy`` chooses, int64 [n]; it observes every round.

    Raises:
        ValueError: a budget that was not replayed.
    """
    chosen = np.empty(len(replayed.records), np.int64)
    places = {int(budget): j for j, budget in enumerate(replayed.budgets)}
    for row in progress(range(len(chosen))):
        record = replayed.records[row]
        budgets = policy.select(state_of(record, scorer))
        place = places.get(int(budgets[0]))
        if place is None:
            raise ValueError(
                f"The policy chose budget {int(budgets[0])}; replayed were {list(places)}."
            )
        chosen[row] = place
        policy.observe(
            RoundOutcome(
                budgets=budgets,
                committed=torch.tensor([int(replayed.committed[row, place])]),
                prefix_lens=torch.tensor([record.prefix_len]),
                latency_s=float(costs[row, place]),
            )
        )
    return chosen


def track(name: str, chosen: np.ndarray, replayed: Replay, costs: np.ndarray) -> Tracking:
    """Compare the chosen budgets [n] with the oracle's among the replayed ones."""
    rates = replayed.committed / costs
    rows = np.arange(len(chosen))
    committed = replayed.committed[rows, chosen]
    return Tracking(
        name=name,
        nodes=float(replayed.budgets[chosen].mean()),
        mat=float(committed.mean()),
        tokens_per_second=float(committed.sum() / costs[rows, chosen].sum()),
        retained=rates[rows, chosen] / rates.max(axis=1),
    )


def fixed_choices(replayed: Replay, place: int) -> np.ndarray:
    """The same budget every round, int64 [n]."""
    return np.full(len(replayed.records), place)


def by_task(
    choices: Mapping[str, np.ndarray], replayed: Replay, costs: np.ndarray
) -> list[TaskRow]:
    """For each task, the best fixed budget in hindsight and the best policy of ``choices``."""
    names = np.array([task_of(record.request_id) for record in replayed.records])
    rows = []
    for task in sorted(set(names.tolist())):
        mine = names == task
        part, part_costs = replayed.subset(mine), costs[mine]
        fixed_rates = part.committed.sum(axis=0) / part_costs.sum(axis=0)
        adaptive = {
            name: track(name, chosen[mine], part, part_costs).tokens_per_second
            for name, chosen in choices.items()
            if not name.startswith("fixed ")
        }
        best = max(adaptive, key=lambda name: adaptive[name])
        place = int(fixed_rates.argmax())
        rows.append(
            TaskRow(task, int(part.budgets[place]), float(fixed_rates[place]), best, adaptive[best])
        )
    return rows


def by_difficulty(replayed: Replay, costs: np.ndarray) -> Difficulty:
    """Split the rounds in thirds by a(Bmax), most accepted first, and find each one's budget."""
    order = np.argsort(-replayed.committed[:, -1], kind="stable")
    thirds = np.array_split(order, 3)
    rates = np.stack(
        [replayed.committed[third].sum(axis=0) / costs[third].sum(axis=0) for third in thirds]
    )
    return Difficulty(
        names=("easy", "medium", "hard"),
        budgets=replayed.budgets,
        best=[int(replayed.budgets[j]) for j in rates.argmax(axis=1)],
        mat=[float(replayed.committed[third, -1].mean()) for third in thirds],
        relative_tps=rates / rates.max(axis=1, keepdims=True),
    )
