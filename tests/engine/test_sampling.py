"""Sampling is distribution-identical: token frequencies with and without trees."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from prompts import prompts
from scipy.stats import chi2_contingency
from server import Server


def draw(server: Server, draws: int, **parameters: Any) -> Counter[tuple[int, ...]]:
    """How often each continuation of three tokens came; the last two are verified by trees."""
    counts: Counter[tuple[int, ...]] = Counter()
    answers = server.generate(
        [prompts()[5]] * draws, 3, temperature=1.0, ignore_eos=True, **parameters
    )
    counts.update(tuple(answer["output_ids"]) for answer in answers)
    return counts


def p_value(one: Counter[Any], other: Counter[Any]) -> float:
    """Two-sample chi-square over the outcomes seen at least 10 times, the rest in one cell."""
    common = [key for key in one | other if one[key] + other[key] >= 10]
    table = np.array([[c[key] for key in common] for c in (one, other)])
    rest = [[c.total() - row.sum()] for c, row in zip((one, other), table, strict=True)]
    table = np.hstack([table, rest])
    return float(chi2_contingency(table[:, table.sum(0) > 0]).pvalue)


def assert_same_distribution(
    graft: Server, reference: Server, draws: int, **parameters: Any
) -> None:
    """The draws of three tokens, and of each place alone, pass p > 0.001.

    The servers' seeds are their own, so of some twenty such tests in a run of the suite one falls
    below by chance every fiftieth run. A test that does is drawn once more with twice the draws: a
    bias shows again, and more clearly; chance does not.
    """
    for attempt in (1, 2):
        trees = draw(graft, draws * attempt, **parameters)
        plain = draw(reference, draws * attempt, **parameters)
        assert len(trees) > 8, "draws must differ"
        found = [p_value(trees, plain)]
        found += [p_value(_marginal(trees, place), _marginal(plain, place)) for place in range(3)]
        if min(found) > 0.001:
            return
    pytest.fail(f"p-values of two runs below 0.001, in the second: {found}")


@pytest.mark.parametrize(
    "parameters",
    [{"top_k": 4}, {"top_p": 0.6}, {"min_p": 0.2}, {"top_k": 8, "top_p": 0.8, "min_p": 0.05}],
    ids=lambda p: "-".join(p),
)
def test_token_frequencies(
    graft: Server, reference: Server, script: Any, parameters: dict[str, Any]
) -> None:
    """Faults 2 and 3 on the server: no silent greedy verification, no bias among siblings."""
    script.budgets(24)
    assert_same_distribution(graft, reference, 600, **parameters)


def _marginal(counts: Counter[tuple[int, ...]], place: int) -> Counter[int]:
    total: Counter[int] = Counter()
    for key, count in counts.items():
        total[key[place]] += count
    return total


def test_plain_temperature(graft: Server, reference: Server, script: Any) -> None:
    script.budgets(24)
    bias = {"logit_bias": {str(token): 9.0 for token in range(300, 312)}}
    assert_same_distribution(graft, reference, 2_000, **bias)


def test_greedy_and_sampled_requests_share_a_batch(
    graft: Server, reference: Server, script: Any
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    script.budgets(24)
    plain = reference.generate([prompts()[0]], 48)[0]["output_ids"]
    with ThreadPoolExecutor(6) as pool:
        jobs = [
            pool.submit(graft.generate, [prompts()[0]], 48, temperature=float(i % 2))
            for i in range(6)
        ]
    assert all(job.result()[0]["output_ids"] == plain for job in jobs[::2])
