"""What every backend demands of the lengths that it is given."""

from __future__ import annotations

import torch


def check_lengths(batch_size: int, **given: torch.Tensor) -> None:
    """Refuse lengths of another batch: a kernel would read beyond them. Looks at shapes only.

    Raises:
        ValueError: a tensor that is not [bs].
    """
    for name, lengths in given.items():
        if lengths.shape != (batch_size,):
            raise ValueError(f"{name} must be [{batch_size}], not {list(lengths.shape)}")
