"""When a token other than the reference's is rounding, and when it is an error.

In bfloat16 and float16 two correct forwards of different shape give logits that differ in the last
bits, so where the target's two best tokens are almost equal either may come out. In float32 that is
too rare to be an excuse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NEAR_TIE_NATS = 0.25
"""Largest difference of two log-probabilities that counts as a near-tie.

Two spacings of bfloat16 for logits between 16 and 32, where the best logits of language models
usually are. Tokens that a wrong mask or position brings are mostly further away.
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """The reference's greedy token at one position, and what else it thought of."""

    token: int
    log_probs: dict[int, float]
    """Nats, of its few most probable tokens."""

    @property
    def margin(self) -> float:
        """log p of the best token less log p of the second best, nats."""
        best, second, *_ = sorted(self.log_probs.values(), reverse=True)
        return best - second

    def gap(self, token: int) -> float:
        """log p of the best token less log p of ``token``, nats; inf if it isn't among them."""
        return max(self.log_probs.values()) - self.log_probs.get(token, -math.inf)


def is_near_tie(choice: Choice, token: int, exact: bool) -> bool:
    """Whether ``token`` instead of the reference's is rounding.

    Args:
        exact: float32, where no difference is.
    """
    return not exact and choice.gap(token) <= NEAR_TIE_NATS
