"""Measurements that anyone can repeat: ``python -m graft_sglang.benchmarks.NAME``."""
