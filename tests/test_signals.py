"""The state signals are Eq. 15, literally."""

from __future__ import annotations

import pytest
import torch

from graft_sglang.contracts import DraftCandidates, EdgeScores
from graft_sglang.signals import decoding_state


@pytest.mark.parametrize(("batch_size", "depth"), [(1, 15), (5, 7), (3, 2), (2, 1)])
def test_signals(batch_size: int, depth: int) -> None:
    generator = torch.Generator().manual_seed(depth)
    log_probs = torch.randn(batch_size, depth, 4, generator=generator).log_softmax(-1)
    log_probs = log_probs.sort(descending=True).values
    cosines = torch.rand(batch_size, depth - 1, generator=generator) * 2 - 1
    candidates = DraftCandidates(
        torch.zeros(batch_size, dtype=torch.int64),
        torch.zeros(batch_size, depth, 4, dtype=torch.int64),
        log_probs,
        cosines,
    )
    history = torch.full((batch_size,), float("nan"))
    prefix_lens = torch.arange(batch_size)
    scores = EdgeScores(log_probs[:, :, None])
    state = decoding_state(candidates, scores, history, prefix_lens)
    for row in range(batch_size):
        top = [float(log_probs[row, d, 0].exp()) for d in range(depth)]
        assert float(state.confidence[row]) == pytest.approx(sum(top) / depth, abs=1e-6)
        r = cosines[row].tolist()
        expected = sum(r) / len(r) + r[-1] - r[0] if r else 0.0
        assert float(state.degeneration[row]) == pytest.approx(expected, abs=1e-6)
    assert state.history is history
    assert state.prefix_lens is prefix_lens
    assert state.candidates is candidates
    assert state.scores is scores


def test_rows_that_are_not_contiguous() -> None:
    whole = torch.randn(4, 3, 8).log_softmax(-1).sort(descending=True).values
    halves = (whole[::2], whole[::2].clone())
    found = [
        decoding_state(
            DraftCandidates(torch.zeros(2).long(), rows.long(), rows, torch.ones(4, 2)[::2]),
            EdgeScores(rows[:, :, None]),
            torch.ones(2),
            torch.ones(2).long(),
        )
        for rows in halves
    ]
    assert torch.equal(found[0].confidence, found[1].confidence)
    assert found[0].degeneration.tolist() == [1.0, 1.0]
