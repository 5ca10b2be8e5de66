"""A batch of unequal trees, verified by a small random model through SGLang's FlashInfer backend.

``verify_tree`` is ours. Of SGLang these run as they are: ``DFlashVerifyInput``'s arrays, the view
of a padded batch that a graph's replay gets, and the backend's call of FlashInfer's ``plan``.
Replaced are the index kernel (``TableTranslator``; test_flashinfer_contract.py compares the two),
the model, and FlashInfer itself (flashinfer_reference.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from flashinfer_reference import PagedPrefillReference
from sglang.srt.layers.attention.flashinfer_backend import FlashInferIndicesUpdaterPrefill
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.model_executor.runner.decode_cuda_graph_runner import build_replay_fb_view
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from table_translator import TableTranslator

from graft_sglang.contracts import DraftCandidates, DraftTree, EdgeScores
from graft_sglang.engine.verify import verify_tree
from graft_sglang.engine.window import Window
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.verify_arrays import VerifyArraysMaker

HEADS, KV_HEADS, DIM, LAYERS, VOCABULARY = 4, 2, 8, 2, 50
PREFIXES = (5, 0, 33)
BUDGETS = (9, 20, 3)
CONTEXT = 128
FILL_LENGTH = 1
"""Of the requests that SGLang fills a captured batch up with."""


class Model:
    """A small decoder with random weights: attention, a residual, a head; learned positions."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)

        def weights(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64) / shape[0] ** 0.5

        width = HEADS * DIM
        self.tokens = 6 * weights(VOCABULARY, width)
        self.positions = 6 * weights(CONTEXT, width)
        self.q = [weights(width, width) for _ in range(LAYERS)]
        self.kv = [weights(width, 2 * KV_HEADS * DIM) for _ in range(LAYERS)]
        self.head = weights(width, VOCABULARY)

    def run(self, tokens: torch.Tensor, positions: torch.Tensor, attend: Any) -> torch.Tensor:
        """Logits [n, V]; ``attend(layer, q, k, v)`` writes KV and attends."""
        state = self.tokens[tokens] + self.positions[positions]
        for layer in range(LAYERS):
            q = (state @ self.q[layer]).view(-1, HEADS, DIM)
            k, v = (state @ self.kv[layer]).view(-1, 2, KV_HEADS, DIM).unbind(1)
            state = state + attend(layer, q, k, v).flatten(1)
        return state @ self.head

    def causal(self, tokens: torch.Tensor, keep: Any = lambda layer, k, v: None) -> torch.Tensor:
        """Logits of a plain sequence; ``keep`` is shown every layer's keys and values."""

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keep(layer, k, v)
            groups = HEADS // KV_HEADS
            k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
            scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5
            visible = torch.ones(len(q), len(q), dtype=torch.bool).tril()
            weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
            return torch.einsum("hqk,khd->qhd", weights, v)

        return self.run(tokens, torch.arange(len(tokens)), attend)


@dataclass
class Case:
    """Prefixes whose KV is in the cache, and a tree after each."""

    model: Model
    prefixes: list[torch.Tensor]
    tree: DraftTree
    table: torch.Tensor
    """int64 [requests + 1, CONTEXT]: KV slots; row 0 is the one that SGLang keeps for padding."""
    cache: list[tuple[torch.Tensor, torch.Tensor]]

    @property
    def rows(self) -> torch.Tensor:
        """Rows of the requests in the table."""
        return torch.arange(1, len(self.prefixes) + 1)

    def ancestor_logits(self, row: int, node: int) -> torch.Tensor:
        """[V]: of the node's ancestor chain, run alone as a plain sequence."""
        path, at = [], node
        while at >= 0:
            path.insert(0, at)
            at = int(self.tree.parents[row, at])
        tokens = torch.cat((self.prefixes[row], self.tree.token_ids[row, path]))
        return self.model.causal(tokens)[-1]

    def largest_error(self, logits: torch.Tensor) -> float:
        """Of logits [requests, N, V], over all nodes that are no padding."""
        return max(
            float((logits[row, node] - self.ancestor_logits(row, node)).abs().max())
            for row in range(len(self.prefixes))
            for node in range(int(self.tree.num_nodes[row]))
        )


def make_case(page_size: int) -> Case:
    """Slots come in pages of ``page_size``, in random order."""
    generator = torch.Generator().manual_seed(page_size)
    count = len(PREFIXES)
    logits = torch.randn(count, 6, VOCABULARY, generator=generator)
    log_probs, token_ids = logits.log_softmax(-1).topk(8)
    roots = torch.randint(VOCABULARY, (count,), generator=generator)
    candidates = DraftCandidates(roots, token_ids, log_probs, torch.zeros(count, 5))
    tree = BestFirstTreeBuilder().build(
        candidates, EdgeScores(log_probs[:, :, None]), torch.tensor(BUDGETS)
    )
    pages = torch.randperm((count + 1) * CONTEXT // page_size, generator=generator)
    table = (pages[:, None] * page_size + torch.arange(page_size)).view(count + 1, CONTEXT)
    shape = (table.numel(), KV_HEADS, DIM)
    cache = [
        tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
        for _ in range(LAYERS)
    ]
    model = Model()
    prefixes = []
    for row, length in enumerate(PREFIXES):
        prefix = torch.randint(VOCABULARY, (length,), generator=generator)
        prefixes.append(prefix)
        slots = table[row + 1, :length]

        def keep(layer: int, k: torch.Tensor, v: torch.Tensor, at: torch.Tensor = slots) -> None:
            cache[layer][0][at], cache[layer][1][at] = k, v

        model.causal(prefix, keep)
    return Case(model, prefixes, tree, table, cache)


class Target:
    """Stands in for SGLang's ``TpModelWorker``: FlashInfer's contract instead of a GPU.

    Args:
        wrapper: captured, or not; the next round may use it again.
        padded: requests that a captured batch is filled up with.
        spoil: may change the forward before FlashInfer's plan.
    """

    def __init__(
        self,
        case: Case,
        wrapper: PagedPrefillReference,
        padded: int = 0,
        spoil: Callable[[Any], None] = lambda forward: None,
    ) -> None:
        self.case, self.wrapper, self.padded, self.spoil = case, wrapper, padded, spoil
        self.model_runner = SimpleNamespace(device="cpu")

    def forward_batch_generation(self, *, forward_batch: Any, **_: Any) -> torch.Tensor:
        """Logits [requests, N, V]."""
        raw, width = forward_batch.batch_size, forward_batch.spec_info.draft_token_num
        slots, real = forward_batch.out_cache_loc, raw * width
        if self.captured:
            forward_batch = self._replayed(forward_batch, raw + self.padded, width)
        self.spoil(forward_batch)
        self.plan(forward_batch)

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = (part.clone() for part in self.case.cache[layer])
            keys[slots], values[slots] = k[:real], v[:real]
            return self.attend(q, k, v, keys, values)

        logits = self.case.model.run(forward_batch.input_ids, forward_batch.positions, attend)
        return logits[:real].view(raw, width, VOCABULARY)

    @property
    def captured(self) -> bool:
        """Whether the forward is a graph's replay."""
        return self.wrapper.is_cuda_graph_enabled

    def plan(self, forward_batch: Any) -> None:
        """SGLang's preparation of the attention."""
        _plan(self.wrapper, forward_batch, TableTranslator(self.case.table))

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> torch.Tensor:
        """One layer; ``keys`` and ``values`` are the cache, which the new ones are in already."""
        del k, v
        return self.wrapper.forward(q, (keys[:, None], values[:, None]), sm_scale=DIM**-0.5)

    def _replayed(self, forward_batch: Any, size: int, width: int) -> Any:
        missing = size - forward_batch.batch_size

        def filled(values: torch.Tensor, count: int, value: int) -> torch.Tensor:
            return torch.nn.functional.pad(values, (0, count), value=value)

        buffers = SimpleNamespace(
            input_ids=filled(forward_batch.input_ids, missing * width, 0),
            positions=filled(forward_batch.positions, missing * width, 0),
            req_pool_indices=filled(forward_batch.req_pool_indices, missing, 0),
            seq_lens=filled(forward_batch.seq_lens, missing, FILL_LENGTH),
            seq_lens_cpu=filled(forward_batch.seq_lens_cpu, missing, FILL_LENGTH),
            mamba_track_indices=None,
        )
        return build_replay_fb_view(
            forward_batch, buffers, bs=size, raw_bs=forward_batch.batch_size,
            num_tokens=size * width, global_num_tokens_cpu=None, seq_len_fill_value=FILL_LENGTH,
            capture_forward_mode=ForwardMode.TARGET_VERIFY, is_encoder_decoder=False,
        )  # fmt: skip


def _plan(wrapper: PagedPrefillReference, forward: Any, translator: TableTranslator) -> None:
    updater = object.__new__(FlashInferIndicesUpdaterPrefill)
    size = forward.batch_size
    vars(updater).update(
        num_qo_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, data_type=None, q_data_type=None,
        attn_backend=SimpleNamespace(kv_index_translator=translator), prefill_wrapper_ragged=None,
        kv_last_page_len=torch.ones(size, dtype=torch.int32),
        kv_indptr=[torch.zeros(size + 1, dtype=torch.int32)],
        qo_indptr=[torch.zeros(size + 1, dtype=torch.int32)],
    )  # fmt: skip
    updater.update_single_wrapper(
        forward.req_pool_indices, forward.seq_lens, forward.seq_lens_cpu, forward.seq_lens_sum,
        prefix_lens=None, prefill_wrappers=[wrapper], use_ragged=False, encoder_lens=None,
        spec_info=forward.spec_info, plan=forward.kv_loc_plan,
    )  # fmt: skip


def node_logits(target: Target, tree: DraftTree | None = None) -> torch.Tensor:
    """Logits [requests, N, V] of one ``verify_tree``."""
    case = target.case
    tree = case.tree if tree is None else tree
    lengths = torch.tensor(PREFIXES)
    width = tree.token_ids.shape[1]
    slots = torch.stack(
        [case.table[r, n : n + width] for r, n in zip(case.rows, lengths, strict=True)]
    )
    batch = SimpleNamespace(
        req_pool_indices=case.rows, seq_lens=lengths, seq_lens_cpu=lengths,
        seq_lens_sum=int(lengths.sum()), out_cache_loc=None,
    )  # fmt: skip
    arrays = VerifyArraysMaker().make(tree, lengths)
    with patch.object(DFlashVerifyInput, "prepare_for_verify", _forward_batch):
        verified = verify_tree(batch, target, arrays, Window(width, slots, None), lengths)
    return verified.output


def _forward_batch(spec: DFlashVerifyInput, batch: Any, worker: Target) -> tuple[Any, bool]:
    """What of ``ForwardBatch.init_new`` the attention reads."""
    unused = (
        "max_seq_len_host", "out_cache_loc_virtual", "kv_loc_plan", "kv_loc_cols", "lora_ids",
        "max_seq_len_override", "can_run_decode_cuda_graph",
    )  # fmt: skip
    forward = SimpleNamespace(
        batch_size=len(batch.seq_lens), input_ids=spec.draft_token, positions=spec.positions,
        req_pool_indices=batch.req_pool_indices, seq_lens=batch.seq_lens.to(torch.int32),
        seq_lens_cpu=batch.seq_lens_cpu, seq_lens_sum=batch.seq_lens_sum, spec_info=spec,
        out_cache_loc=batch.out_cache_loc, forward_mode=ForwardMode.TARGET_VERIFY,
        **dict.fromkeys(unused),
    )  # fmt: skip
    return forward, False
