"""State-Aware Budget Allocation (SABA): gain, cost, fit, policies."""
