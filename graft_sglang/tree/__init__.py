"""Draft trees: building, masking and walking them. Knows torch, numpy and numba only."""
