"""Recorded decoding rounds: what one holds, and how they are kept on disk."""

from graft_sglang.traces.meta import TraceMeta
from graft_sglang.traces.reader import iter_rounds, read_folders, read_meta, read_rounds
from graft_sglang.traces.record import STAGES, RoundRecord
from graft_sglang.traces.requests import by_request, continuation, task_of, with_continuations
from graft_sglang.traces.split import PART_SHARES, part_of, split_by_prompt
from graft_sglang.traces.writer import TraceWriter

__all__ = [
    "PART_SHARES",
    "STAGES",
    "RoundRecord",
    "TraceMeta",
    "TraceWriter",
    "by_request",
    "continuation",
    "iter_rounds",
    "part_of",
    "read_folders",
    "read_meta",
    "read_rounds",
    "split_by_prompt",
    "task_of",
    "with_continuations",
]
