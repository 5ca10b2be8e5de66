"""Run by ``test_gpu_verify.py`` in a process of its own: SGLang's decisions as on a CUDA machine.

Our CPU platform stays out, and SGLang is told which GPU there is: it resolves a server's arguments
and decides about graphs without touching one. Prints what it decided, as JSON.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from graft_sglang.engine import plugin

plugin.activate_platform = lambda: None  # type: ignore[assignment]

from sglang.srt.plugins import load_plugins  # noqa: E402

load_plugins()

from sglang.srt import runtime_context  # noqa: E402
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend  # noqa: E402
from sglang.srt.model_executor.runner.decode_cuda_graph_runner import (  # noqa: E402
    DecodeCudaGraphRunner,
)
from sglang.srt.server_args import prepare_server_args  # noqa: E402
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm  # noqa: E402

HOPPER = {"is_hopper_with_cuda_12_3": True, "has_flashinfer": True}


def resolved(arguments: list[str]) -> dict[str, Any]:
    try:
        server_args = prepare_server_args(["--device", "cuda", *arguments])
        with runtime_context.override_platform(**HOPPER):
            server_args.resolve_once()
        values = server_args.resolved_dict()
    except ValueError as error:
        return {"error": str(error)}
    return {
        "target": values["attention_backend"],
        "drafter": values["speculative_draft_attention_backend"],
        "graphs": values["cuda_graph_config"]["decode"]["backend"],
    }


def graph_runner(width: int, algorithm: str) -> DecodeCudaGraphRunner:
    """As far as its decisions need it: captured at ``width`` for up to 4 requests."""
    runner = object.__new__(DecodeCudaGraphRunner)
    vars(runner).update(
        captured_req_width=width, max_bs=4, ragged_verify_mode=False, disable_padding=False,
        require_mlp_tp_gather=False, require_mlp_sync=False, enable_pdmux=False,
        is_encoder_decoder=False, enable_two_batch_overlap=False, record_nolora_graph=False,
        buffers=SimpleNamespace(custom_mask="the mask"),
        model_runner=SimpleNamespace(
            spec_algorithm=SpeculativeAlgorithm.from_string(algorithm), is_draft_worker=False,
            attn_backend=object.__new__(TritonAttnBackend), lora_manager=None,
        ),
    )  # fmt: skip
    return runner


def replays(width: int, requests: int) -> bool:
    """Whether a graph of 17 nodes would be replayed."""
    forward = SimpleNamespace(
        replace_embeds=None, spec_info=SimpleNamespace(num_tokens_per_req=width),
        batch_size=requests, lora_ids=None,
    )  # fmt: skip
    return bool(graph_runner(17, "GRAFT").can_run_graph(forward))


def captured_mask(algorithm: str) -> Any:
    runtime_context.get_spec = lambda: SimpleNamespace(speculative_algorithm=algorithm)
    return graph_runner(17, algorithm).get_spec_info(17).custom_mask


def main(cases: dict[str, list[str]]) -> None:
    decisions = {
        "resolved": {name: resolved(arguments) for name, arguments in cases.items()},
        "replays": [
            [width, requests, replays(width, requests)]
            for width, requests in ((17, 1), (17, 4), (17, 5), (16, 1), (33, 1))
        ],
        "masks": {name: captured_mask(name) for name in ("GRAFT", "DFLASH")},
    }
    print(json.dumps(decisions))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
