"""Recognises a target model by its input embedding, whatever floating-point type it is served in.

Files made for one target (TDES checkpoints, traces, SABA fits) carry this fingerprint.
"""

from __future__ import annotations

import hashlib

import torch

SAMPLED_ROWS = 256


def fingerprint_embedding(embedding: torch.Tensor) -> str:
    """SHA-256 (hex) of the shape and of 256 evenly spaced rows, rounded to bfloat16.

    The same weights give the same value in float32 and in bfloat16; float16 agrees where it holds
    the bfloat16 values exactly.

    Args:
        embedding: floating point [vocabulary, E], the whole input embedding, on any device.

    Raises:
        ValueError: it isn't a matrix.
    """
    if embedding.dim() != 2 or 0 in embedding.shape:
        raise ValueError(f"an embedding must be [vocabulary, E], not {list(embedding.shape)}")
    vocabulary, hidden = embedding.shape
    rows = torch.arange(min(SAMPLED_ROWS, vocabulary), dtype=torch.int64)
    rows = rows * vocabulary // len(rows)
    sample = embedding.detach()[rows.to(embedding.device)].to("cpu", torch.bfloat16)
    digest = hashlib.sha256(f"{vocabulary}x{hidden};".encode())
    # numpy has no bfloat16: the same 16 bits are hashed as an integer.
    digest.update(sample.contiguous().view(torch.int16).numpy().tobytes())
    return digest.hexdigest()
