"""The algorithm GRAFT as SGLang sees it: what it is like, its arguments, its worker."""

from __future__ import annotations

from typing import Any

from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from graft_sglang.components import build_components
from graft_sglang.engine.cpu_platform import is_active as on_our_cpu_platform
from graft_sglang.engine.flags import config_of
from graft_sglang.engine.gpu_verify import check_attention
from graft_sglang.engine.startup import (
    DRAFTER_WORDS,
    NAME,
    check_features,
    check_local_path,
    launch_context,
    load_plugins_in_tokenizer_workers,
    read_draft_shape,
    verify_width,
)


class GraftAlgorithm(CustomSpecAlgo):
    """A DFlash-family algorithm: SGLang runs its DFlash plumbing for us, the worker is ours.

    SGLang's conformance check does not ask for ``create_future_map``, ``need_topk``,
    ``carries_draft_hidden_states`` and ``get_platform_worker_cls``, but its scheduler calls them.
    """

    def is_dflash(self) -> bool:
        return True

    def is_dflash_family(self) -> bool:
        return True

    def supports_target_verify_for_draft(self) -> bool:
        return True

    def supports_prefill_shared_read_done(self) -> bool:
        return True

    def supports_grammar_overlap(self) -> bool:
        return True

    def carries_draft_hidden_states(self) -> bool:
        return False

    def need_topk(self) -> bool:
        return False

    def create_future_map(self, *args: Any, **kwargs: Any) -> Any:
        # The enum's method only passes `self` on to the map, which asks it is_*() questions.
        return SpeculativeAlgorithm.create_future_map(self, *args, **kwargs)

    def get_platform_worker_cls(self) -> type | None:
        return None

    def get_num_tokens_per_req_for_target_verify(
        self, num_draft_tokens: int, is_draft_worker: bool
    ) -> int:
        """The drafter's forward covers its block, the target's the whole tree."""
        if not is_draft_worker:
            return num_draft_tokens
        from sglang.srt.runtime_context import get_spec

        return int(get_spec().speculative_dflash_block_size)

    def handle_server_args(self, server_args: Any) -> None:
        """Check everything that can be checked before a model is loaded; set SGLang's fields.

        Raises:
            ValueError: one sentence that says what is wrong and what would be right.
        """
        config = config_of(server_args)
        check_features(server_args)
        load_plugins_in_tokenizer_workers(server_args)
        shape = read_draft_shape(server_args)
        if not on_our_cpu_platform():
            check_attention(server_args)
        width = verify_width(config, shape, server_args.speculative_num_draft_tokens)
        # Built once without the target, so that wrong settings end the launch here.
        build_components(config, launch_context(config, shape, width - 1))
        server_args.speculative_num_steps = 1
        server_args.speculative_eagle_topk = 1
        server_args.speculative_num_draft_tokens = width
        server_args.speculative_dflash_block_size = shape.block_size
        if server_args.max_running_requests is None:
            server_args.max_running_requests = 48


def _before_alias(
    algorithm: str | None, draft_model_path: str | None, *args: Any, **kwargs: Any
) -> None:
    """SGLang reads the drafter early, and calls a path that isn't there a bad repository id."""
    if (algorithm or "").upper() == NAME and draft_model_path:
        check_local_path(draft_model_path, DRAFTER_WORDS)


def install() -> None:
    """Register GRAFT; a second load of the plugin in the same process changes nothing."""
    from sglang.srt.speculative.spec_registry import get_spec as registered

    if registered(NAME) is not None:
        return

    HookRegistry.register(
        "sglang.srt.arg_groups.speculative_hook._resolve_speculative_algorithm_alias",
        _before_alias,
        HookType.BEFORE,
    )

    @SpeculativeAlgorithm.register(NAME, supports_overlap=True, spec_class=GraftAlgorithm)
    def _worker(server_args: Any) -> type:
        del server_args
        if on_our_cpu_platform():
            from graft_sglang.engine.worker import GraftWorker

            return GraftWorker
        from graft_sglang.engine.gpu_worker import GpuGraftWorker

        return GpuGraftWorker
