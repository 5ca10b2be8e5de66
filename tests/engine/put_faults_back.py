"""Put each fault back in a private copy and see its test fail: slower than a test, run by hand.

    python tests/engine/put_faults_back.py [NUMBER ...]

Numbers are those of the fault list; without any, all are tried. Exits with 1 if a fault survives.
A fault that ends the server at its start is caught too; a server that is only too slow is not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Fault:
    """One edit that brings a fault back, and the test that must fail then."""

    number: int
    words: str
    file: str
    old: str
    new: str
    test: str


WORKER = "graft_sglang/engine/worker.py"
PLUGIN_START = "def register() -> None:\n"
LAST_TOKEN_ONLY = (
    "    from sglang.srt.managers.schedule_batch import Req\n"
    "    check = Req._check_token_based_finish\n"
    "    Req._check_token_based_finish = lambda req, tokens: check(req, tokens[-1:])\n"
)
LAST_TEXT_ONLY = (
    "    from sglang.srt.managers.schedule_batch import Req\n"
    "    check = Req._check_str_based_finish\n"
    "    Req._check_str_based_finish = lambda req, new=1: False if new > 1 else check(req, new)\n"
)
FAULTS = (
    Fault(1, "token id 0 is padding", WORKER,
          "accept_paths(current.tree, current.target_tokens)",
          "accept_paths(current.tree, current.target_tokens.masked_fill("
          "current.target_tokens == 0, -7))",
          "test_faults.py::test_token_id_0_on_the_true_path"),
    Fault(2, "temperature verified greedily", WORKER,
          "if info.is_all_greedy:", "if True:",
          "test_sampling.py::test_token_frequencies"),
    Fault(4, "shard-local ids", "graft_sglang/engine/marginals.py",
          "torch.arange(first, first + base,", "torch.arange(0, base,",
          "test_marginals.py::test_two_shards_equal_the_whole"),
    Fault(5, "wrong output stride", WORKER,
          "speculative_output_stride=block_size", "speculative_output_stride=block_size - 1",
          "test_faults.py::test_unequal_accept_lengths_in_one_batch"),
    Fault(6, "accepted path not compacted", "graft_sglang/engine/verify.py",
          "    if not rows.numel():\n", "    if True:\n",
          "test_faults.py::test_truth_always_at_rank_2"),
    Fault(10, "stop token looked for at the end of a run", "graft_sglang/engine/plugin.py",
          PLUGIN_START, PLUGIN_START + LAST_TOKEN_ONLY,
          "test_faults.py::test_stop_token_inside_one_accepted_run"),
    Fault(11, "stop text looked for at the end of a run", "graft_sglang/engine/plugin.py",
          PLUGIN_START, PLUGIN_START + LAST_TEXT_ONLY,
          "test_faults.py::test_stop_string_early_in_a_long_accepted_run"),
    Fault(16, "drafter's KV lost on a prefix hit", WORKER,
          "            return super().forward_batch_generation(\n",
          "            if batch.forward_mode.is_extend() and any(batch.prefix_lens or []):\n"
          "                pool = self.draft_model_runner.token_to_kv_pool\n"
          "                for buffer in (*pool.k_buffer, *pool.v_buffer):\n"
          "                    buffer.zero_()\n"
          "            return super().forward_batch_generation(\n",
          "test_faults.py::test_prefix_reuse_keeps_the_accept_length"),
    Fault(17, "rows counted by another batch's lengths", WORKER,
          'host_lens = batch.seq_lens.to("cpu", torch.int64)',
          'host_lens = batch.seq_lens.to("cpu", torch.int64) - int(len(batch.reqs) > 2)',
          "test_faults.py::test_chunked_prefill_with_staggered_arrivals"),
    Fault(18, "buffers keyed by batch size only", "graft_sglang/engine/cpu_attention.py",
          "        self._slots: list[torch.Tensor] = []\n",
          "        if len(getattr(self, '_slots', ())) == forward_batch.batch_size:\n"
          "            return\n"
          "        self._slots: list[torch.Tensor] = []\n",
          "test_lossless.py::test_budgets_that_change_every_round_and_request"),
    Fault(19, "mask of the wrong size", "graft_sglang/tree/masks/numba_backend.py",
          "return out[:total]", "return out[: total - 1]",
          "test_cpu_attention.py"),
    Fault(20, "siblings at sequential positions", "graft_sglang/tree/verify_arrays.py",
          "prefixes[b] + depths[b, node]", "prefixes[b] + node",
          "test_faults.py::test_truth_always_at_rank_2"),
    Fault(21, "another request's mask", "graft_sglang/tree/verify_arrays.py",
          "mask=self._mask[:total]", "mask=self._mask[:total].roll(width)",
          "test_lossless.py::test_budgets_that_change_every_round_and_request"),
    Fault(22, "plugin missing in child processes", "graft_sglang/engine/plugin.py",
          PLUGIN_START,
          PLUGIN_START + "    import multiprocessing\n"
          "    if multiprocessing.parent_process() is not None:\n        return\n",
          "test_processes.py::test_sglang_serve"),
    Fault(24, "no depth cap", "graft_sglang/engine/round.py",
          "min(remaining - 1,", "min(remaining + 99,",
          "test_faults.py::test_max_new_tokens_is_never_exceeded"),
)  # fmt: skip


def survives(fault: Fault) -> str:
    """Run the fault's test on a copy that has the fault; says how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        skip = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "smollm2_pair", "build")
        shutil.copytree(ROOT, copy, ignore=skip)
        path = copy / fault.file
        source = path.read_text()
        if fault.old not in source:
            return "the place to edit is gone"
        path.write_text(source.replace(fault.old, fault.new, 1))
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", f"tests/engine/{fault.test}"],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            check=False,
        )
    if result.returncode == 1 and "RuntimeError: the server did not start in" not in result.stdout:
        return "caught"
    return result.stdout[-300:] or result.stderr[-300:]


def main() -> int:
    chosen = {int(argument) for argument in sys.argv[1:]}
    bad = 0
    for fault in FAULTS:
        if chosen and fault.number not in chosen:
            continue
        ending = survives(fault)
        bad += ending != "caught"
        print(f"{fault.number:>3} {fault.words}: {ending} ({fault.test})", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
