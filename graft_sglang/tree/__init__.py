"""Draft trees: building, masking and walking them. Knows torch, numpy, numba and Triton only."""
