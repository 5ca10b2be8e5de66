"""The decoding round inside SGLang: draft, build, verify, commit."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.logprob_processor import compute_spec_logprobs
from sglang.srt.lora.layers import unwrap_lora_layer
from sglang.srt.managers.scheduler import GenerationBatchResult
from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.runtime_context import get_parallel, get_spec
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from sglang.srt.speculative.draft_worker_common import make_draft_input_v2
from sglang.srt.speculative.spec_tp_sync import SpecTpSyncSite
from sglang.srt.speculative.spec_utils import (
    GrammarTree,
    build_grammar_vocab_mask,
    draft_tp_context,
)

from graft_sglang.components import build_components
from graft_sglang.contracts import ComponentContext, DraftTree, RoundOutcome
from graft_sglang.engine.draft import draft_batch
from graft_sglang.engine.embedding import full_embedding
from graft_sglang.engine.flags import config_of
from graft_sglang.engine.marginals import candidates_from_logits, head_logits
from graft_sglang.engine.metrics import RoundMetrics
from graft_sglang.engine.recorder import RoundRecorder
from graft_sglang.engine.round import Round, depth_caps
from graft_sglang.engine.target_tokens import adjust_logits, greedy_tokens, sampled_tokens
from graft_sglang.engine.verify import compact_target_kv, verify_tree
from graft_sglang.engine.window import plan_window
from graft_sglang.history import AcceptHistory
from graft_sglang.planning import plan_round
from graft_sglang.transfer import candidates_on
from graft_sglang.tree.acceptance import accept_paths
from graft_sglang.tree.verify_arrays import VerifyArraysMaker
from graft_sglang.tree.warmup import warm_up


class GraftWorker(DFlashWorkerV2):
    """SGLang's DFlash worker with its decode step replaced by a draft tree's.

    Prefill, the drafter's KV and idle batches stay SGLang's. A round's result is
    ``block_size`` columns wide, because an accepted path never exceeds the drafter's block,
    while the verify window is as wide as the widest tree of the batch.
    """

    def __init__(
        self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: TpModelWorker
    ) -> None:
        spec = get_spec()
        self.max_width = int(spec.speculative_num_draft_tokens)
        block_size = int(spec.speculative_dflash_block_size)
        with spec.override(speculative_num_draft_tokens=block_size):
            super().__init__(server_args, gpu_id, nccl_port, target_worker)
        config = config_of(server_args)
        model_config = target_worker.model_runner.model_config
        self._num_candidates = min(config.candidates, int(model_config.vocab_size))
        self._parts = build_components(
            config,
            ComponentContext(
                depth=block_size - 1,
                num_candidates=self._num_candidates,
                max_budget=self.max_width - 1,
                vocab_size=int(model_config.vocab_size),
                device=torch.device(self.device),
                options=config.as_options(),
                target_embedding=self._target_embedding,
            ),
        )
        warm_up(self._parts.builder)
        self._history = AcceptHistory()
        self._verify_arrays = VerifyArraysMaker()
        first_rank = get_parallel().tp_rank == 0
        self._metrics = RoundMetrics(
            int(server_args.decode_log_interval), bool(server_args.enable_metrics and first_rank)
        )
        self._recorder: RoundRecorder | None = None
        if config.trace_dir and first_rank:
            self._recorder = RoundRecorder.to_folder(
                config.trace_dir,
                server_args.speculative_draft_model_path,
                block_size - 1,
                self._num_candidates,
                self._target_embedding(),
            )
        self._context_len = int(model_config.context_len)

    def _target_embedding(self) -> torch.Tensor:
        embedding = unwrap_lora_layer(self.model_runner.model.get_input_embeddings())
        return full_embedding(embedding, get_parallel().tp_group)

    def alloc_memory_pool(self, *args: Any, **kwargs: Any) -> None:
        super().alloc_memory_pool(*args, **kwargs)
        pool = self.model_runner.token_to_kv_pool
        if not isinstance(pool, MHATokenToKVPool):
            raise ValueError(
                f"GRAFT can't serve this target: its KV cache ({type(pool).__name__}) has no plain "
                f"move operation, so an accepted path can't be compacted."
            )

    def forward_batch_generation(
        self,
        batch: Any,
        on_publish: Any = None,
        grammar_barrier: Any = None,
        pp_proxy_tensors: Any = None,
    ) -> GenerationBatchResult:
        if (
            batch.forward_mode.is_extend()
            or batch.is_extend_in_batch
            or batch.forward_mode.is_idle()
        ):
            return super().forward_batch_generation(
                batch, on_publish, grammar_barrier, pp_proxy_tensors
            )
        if self.device != "cpu":
            batch.seq_lens.record_stream(torch.get_device_module(self.device).current_stream())
        host_lens = batch.seq_lens.to("cpu", torch.int64)
        current = Round(batch, host_lens)
        self._draft(current)
        self._build_tree(current)
        self._verify(current, grammar_barrier)
        current.accepted = accept_paths(current.tree, current.target_tokens)
        current.clock.end("accept")
        result = self._commit(current, on_publish)
        current.clock.end("commit")
        self._learn(current)
        return result

    def _draft(self, current: Round) -> None:
        """One drafter forward over [root, mask, ..., mask], and its marginals."""
        batch = current.batch
        block = plan_window(batch, self.model_runner, int(self.block_size), current.host_lens)
        current.block = block
        embed = unwrap_lora_layer(self.model_runner.model.get_input_embeddings())
        forward_batch = draft_batch(
            batch,
            block,
            embed,
            mask_token_id=int(self._mask_token_id),
            embedding_scale=self._noise_embed_scale,
            spec_info=self._draft_block_spec_info,
        )
        block.plan.bind(forward_batch, self.draft_model_runner.kv_index_translator)
        with torch.inference_mode(), draft_tp_context(self.draft_parallel_layout):
            output = self.draft_model_runner.forward(forward_batch).logits_output
            hidden = output.hidden_states.view(*block.slots.shape, -1)[:, 1:]
            shard = head_logits(hidden, unwrap_lora_layer(self.model_runner.model.lm_head))
            current.clock.end("draft")
            candidates = candidates_from_logits(
                hidden,
                shard,
                batch.spec_info.bonus_tokens.view(-1),
                self._num_candidates,
                get_parallel().tp_group,
            )
        current.candidates = candidates_on(candidates, self._parts.device)
        current.clock.end("candidates")

    def _build_tree(self, current: Round) -> None:
        """Score, choose the budgets, grow the trees."""
        caps = depth_caps(
            current.batch.reqs, current.host_lens, self._context_len, int(self.block_size) - 1
        )
        current.plan = plan_round(
            self._parts,
            current.candidates,
            self._history.means(current.request_ids),
            current.host_lens,
            caps,
            self.max_width - 1,
            current.clock,
        )

    def _verify(self, current: Round, grammar_barrier: Any) -> None:
        """One target forward over the trees, and the target's own token at their nodes."""
        batch, tree = current.batch, current.tree
        grammar_tree = None
        if batch.has_grammar:
            grammar_tree = GrammarTree.from_host(
                tree.first_child.long(), tree.next_sibling.long(), tree.token_ids
            )
        arrays = self._verify_arrays.make(tree, current.host_lens)
        width = tree.token_ids.shape[1]
        current.window = plan_window(batch, self.model_runner, width, current.host_lens)
        verified = verify_tree(batch, self.target_worker, arrays, current.window, current.host_lens)
        current.output = verified.output
        logits = self._gathered_logits(verified.output.logits_output)
        adjust_logits(logits, batch, tree.depths, current.host_lens.tolist())
        if grammar_tree is not None:
            mask = build_grammar_vocab_mask(
                reqs=batch.reqs,
                tree=grammar_tree,
                sampling_info=batch.sampling_info,
                device=logits.device,
                barrier=grammar_barrier,
            )
            if mask is not None:
                mask.apply(logits)
        current.logits = logits
        current.target_tokens = self._target_tokens(batch, logits, tree, verified.positions)
        current.clock.end("verify")

    def _gathered_logits(self, logits_output: Any) -> torch.Tensor:
        """Logits over the full vocabulary, [bs * width, V]; a sharded head leaves them apart."""
        processor = self._target_logits_processor
        logits = logits_output.next_token_logits
        if processor is not None and processor.is_deferred_shard(logits):
            logits = processor.finish_deferred_gather(logits)
            logits_output.next_token_logits = logits
        return logits

    def _target_tokens(
        self, batch: Any, logits: torch.Tensor, tree: DraftTree, positions: torch.Tensor
    ) -> torch.Tensor:
        """The target's own token at every node that matters, int64 [bs, width] on the CPU."""
        info = batch.sampling_info
        if info.is_all_greedy:
            tokens = greedy_tokens(logits, len(batch.reqs))
        else:
            tokens = sampled_tokens(logits, tree, self.model_runner.sampler, info, positions)
            tokens = tokens.to(logits.device)
        self._tp_sync.sync(SpecTpSyncSite.DFLASH_TARGET, tokens)
        return tokens.to("cpu", torch.int64)

    def _commit(self, current: Round, on_publish: Any) -> GenerationBatchResult:
        """Keep the accepted path: lengths, target KV, drafter KV."""
        batch, tree, accepted = current.batch, current.tree, current.accepted
        window, block, output = current.window, current.block, current.output
        batch_size, width = tree.token_ids.shape
        block_size = int(self.block_size)
        device = batch.seq_lens.device
        paths = _padded(accepted.nodes, block_size, -1)
        tokens = _padded(accepted.tokens, block_size, 0)
        committed = accepted.lengths + 1
        rows = torch.arange(batch_size)[:, None] * width + paths.clamp(min=0)
        logits_output = output.logits_output
        if batch.return_logprob:
            predicted = torch.zeros(batch_size * width, dtype=torch.int64)
            valid = paths >= 0
            predicted[rows[valid]] = tokens[valid]
            compute_spec_logprobs(
                batch, logits_output, predicted.to(device), accept_index=rows.to(device)
            )
        new_seq_lens = batch.seq_lens + committed.to(device, batch.seq_lens.dtype)
        if on_publish is not None:
            on_publish(new_seq_lens)
        compact_target_kv(self.model_runner, window, paths, accepted.lengths)
        hidden = logits_output.hidden_states
        slots = self._draft_write_ids(block.plan)
        self._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=hidden[rows.flatten().to(device)],
            cache_loc=slots,
            cache_loc_2d=slots.view(batch_size, block_size),
            positions=block.positions(batch.seq_lens).flatten(),
            commit_lens=committed.to(device, torch.int32),
        )
        logits_output.hidden_states = None
        return GenerationBatchResult(
            logits_output=logits_output,
            next_token_ids=tokens.flatten().to(device),
            accept_lens=committed.to(device, torch.int32),
            cap_lens=(tree.num_nodes - 1).to(device, torch.int32),
            can_run_cuda_graph=output.can_run_cuda_graph,
            next_draft_input=make_draft_input_v2(
                bonus_tokens=accepted.bonus.to(device), new_seq_lens=new_seq_lens
            ),
            speculative_num_draft_tokens=width,
            speculative_output_stride=block_size,
            new_seq_lens=new_seq_lens,
            routed_experts_output=output.routed_experts_output,
            indexer_topk_output=output.indexer_topk_output,
        )

    def _learn(self, current: Round) -> None:
        """Tell history, policy, metrics and recorder how the round went."""
        committed = current.accepted.committed
        tokens = committed.tolist()
        self._history.record(current.request_ids, tokens)
        self._metrics.add((current.tree.num_nodes - 1).tolist(), tokens, current.clock.seconds)
        self._parts.policy.observe(
            RoundOutcome(
                budgets=current.plan.budgets,
                committed=committed,
                prefix_lens=current.host_lens,
                latency_s=current.clock.total,
            )
        )
        if self._recorder is not None:
            self._recorder.record(current)


def _padded(values: torch.Tensor, width: int, fill: int) -> torch.Tensor:
    """``values`` [bs, n] with n brought to ``width``; columns beyond it hold nothing."""
    if values.shape[1] >= width:
        return values[:, :width]
    return torch.nn.functional.pad(values, (0, width - values.shape[1]), value=fill)
