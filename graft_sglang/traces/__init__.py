"""Recorded decoding rounds: what one holds, and how they are kept on disk."""

from graft_sglang.traces.record import STAGES, RoundRecord

__all__ = ["STAGES", "RoundRecord"]
