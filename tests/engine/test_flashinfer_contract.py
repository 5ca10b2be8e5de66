"""What our verify hands to FlashInfer gives every node the logits of its own ancestor chain.

The arrays come from SGLang's own ``DFlashVerifyInput.generate_attn_arg_prefill``, the kernel is the
plain torch one of ``flashinfer_reference.py``. Of SGLang only the index translator, whose kernel
needs a GPU, is replaced: by a read of the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from flashinfer.prefill import _compute_page_mask_indptr
from flashinfer_reference import batch_prefill_paged
from sglang.srt.speculative.dflash_info import DFlashVerifyInput

from graft_sglang.contracts import DraftCandidates, DraftTree, EdgeScores
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.masks.numba_backend import packed_mask
from graft_sglang.tree.verify_arrays import VerifyArraysMaker

HEADS, KV_HEADS, DIM, LAYERS, VOCABULARY = 4, 2, 8, 2, 50
PREFIXES = (5, 0, 33)
BUDGETS = (9, 20, 3)
CONTEXT = 96


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


class TableTranslator:
    """``pack_read_stream`` as a plain read of ``req_to_token``."""

    def __init__(self, table: torch.Tensor) -> None:
        self._table = table

    def pack_read_stream(
        self,
        plan: Any,
        *,
        req_pool_indices: torch.Tensor,
        seq_lens: torch.Tensor,
        indptr: torch.Tensor,
        out: torch.Tensor,
        **_: Any,
    ) -> None:
        rows = zip(req_pool_indices.tolist(), seq_lens.tolist(), indptr.tolist(), strict=False)
        for request, length, start in rows:
            out[start : start + length] = self._table[request, :length]


@dataclass
class Verify:
    """A batch of unequal trees after prefixes whose KV is in the cache."""

    model: Model
    prefixes: list[torch.Tensor]
    tree: DraftTree
    table: torch.Tensor
    cache: list[tuple[torch.Tensor, torch.Tensor]]
    page_size: int


def prepare(page_size: int, padded: int) -> Verify:
    """``padded`` dummy requests stand behind the real ones, as in a captured batch."""
    generator = torch.Generator().manual_seed(page_size)
    count = len(PREFIXES)
    logits = torch.randn(count, 6, VOCABULARY, generator=generator)
    log_probs, token_ids = logits.log_softmax(-1).topk(8)
    candidates = DraftCandidates(
        torch.randint(VOCABULARY, (count,), generator=generator),
        token_ids,
        log_probs,
        torch.zeros(count, 5),
    )
    tree = BestFirstTreeBuilder().build(
        candidates, EdgeScores(log_probs[:, :, None]), torch.tensor(BUDGETS)
    )
    rows = count + padded
    order = torch.randperm(rows * CONTEXT // page_size, generator=generator)
    table = (order[:, None] * page_size + torch.arange(page_size)).view(rows, CONTEXT)
    cache = [
        tuple(
            torch.randn(rows * CONTEXT, KV_HEADS, DIM, generator=generator, dtype=torch.float64)
            for _ in range(2)
        )
        for _ in range(LAYERS)
    ]
    model = Model()
    prefixes = []
    for row, length in enumerate(PREFIXES):
        prefix = torch.randint(VOCABULARY, (length,), generator=generator)
        prefixes.append(prefix)
        slots = table[row, :length]

        def keep(layer: int, k: torch.Tensor, v: torch.Tensor, at: torch.Tensor = slots) -> None:
            cache[layer][0][at], cache[layer][1][at] = k, v

        model.causal(prefix, keep)
    return Verify(model, prefixes, tree, table, cache, page_size)


def node_logits(
    verify: Verify, padded: int = 0, packed: bool = False, spoil: Any = lambda arguments: None
) -> torch.Tensor:
    """Logits [real requests, N, V] of one verify forward, through SGLang's own arrays."""
    tree, count = verify.tree, len(PREFIXES)
    width = tree.token_ids.shape[1]
    lengths = torch.tensor(PREFIXES)
    arrays = VerifyArraysMaker().make(tree, lengths)
    spec = DFlashVerifyInput(
        draft_token=arrays.token_ids,
        positions=arrays.positions,
        draft_token_num=width,
        custom_mask=arrays.mask.clone(),
    )
    # SGLang fills a captured batch up with requests of length 1 in row 0 of its table.
    requests = torch.tensor([*range(count), *[count] * padded])
    lens = torch.cat((lengths, torch.ones(padded, dtype=torch.int64)))
    kv_indices, kv_indptr, qo_indptr, mask = spec.generate_attn_arg_prefill(
        req_pool_indices=requests,
        paged_kernel_lens=lens.to(torch.int32),
        paged_kernel_lens_sum=int(lens.sum()),
        translator=TableTranslator(verify.table),
        plan=SimpleNamespace(),
    )
    last_page_len = torch.ones(len(requests), dtype=torch.int32)
    arguments = SimpleNamespace(kv_indices=kv_indices, kv_indptr=kv_indptr, mask=mask, packed=None)
    if packed:
        arguments.packed, starts = packed_mask(tree, lengths)
        bits = _compute_page_mask_indptr(qo_indptr, kv_indptr, last_page_len, 1)
        assert torch.equal(starts.diff(), (bits.diff() + 7) // 8)
    spoil(arguments)
    slots = torch.stack(
        [verify.table[r, n : n + width] for r, n in zip(requests, lens, strict=True)]
    ).flatten()
    tokens = torch.cat((arrays.token_ids, torch.zeros(padded * width, dtype=torch.int64)))
    positions = torch.cat((arrays.positions, torch.zeros(padded * width, dtype=torch.int64)))

    def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        keys, values = (part.clone() for part in verify.cache[layer])
        keys[slots], values[slots] = k, v
        return batch_prefill_paged(
            q,
            (keys[:, None], values[:, None]),
            qo_indptr,
            arguments.kv_indptr,
            arguments.kv_indices,
            last_page_len,
            None if packed else arguments.mask,
            arguments.packed,
        )

    logits = verify.model.run(tokens, positions, attend)
    return logits[: count * width].view(count, width, VOCABULARY)


def largest_difference(verify: Verify, logits: torch.Tensor) -> float:
    """To the logits of every real node's ancestor chain, run alone as a plain sequence."""
    worst = 0.0
    for row, prefix in enumerate(verify.prefixes):
        parents, tokens = verify.tree.parents[row].tolist(), verify.tree.token_ids[row]
        for node in range(int(verify.tree.num_nodes[row])):
            path, at = [], node
            while at >= 0:
                path.insert(0, at)
                at = parents[at]
            alone = verify.model.causal(torch.cat((prefix, tokens[path])))[-1]
            worst = max(worst, float((logits[row, node] - alone).abs().max()))
    return worst


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("padded", [0, 2])
def test_nodes_see_their_ancestor_chains(page_size: int, padded: int) -> None:
    verify = prepare(page_size, padded)
    assert largest_difference(verify, node_logits(verify, padded)) < 1e-9


@pytest.mark.parametrize("page_size", [1, 16])
def test_the_packed_mask_is_the_same(page_size: int) -> None:
    verify = prepare(page_size, 0)
    assert torch.equal(node_logits(verify, packed=True), node_logits(verify))


def _flip_bit(arguments: Any) -> None:
    arguments.mask = arguments.mask.clone()
    arguments.mask[2] = ~arguments.mask[2]


def _swap_slots(arguments: Any) -> None:
    arguments.kv_indices[[0, 1]] = arguments.kv_indices[[1, 0]]
    arguments.kv_indices[3] = arguments.kv_indices[4]


def _causal(arguments: Any) -> None:
    """What a verify captured without a mask would do: trees read as chains."""
    width = max(BUDGETS) + 1
    blocks = [torch.ones(width, n + width, dtype=torch.bool).tril(n).flatten() for n in PREFIXES]
    arguments.mask = torch.cat(blocks)


@pytest.mark.parametrize("spoil", [_flip_bit, _swap_slots, _causal])
def test_a_wrong_array_would_show(spoil: Any) -> None:
    verify = prepare(1, 0)
    assert largest_difference(verify, node_logits(verify, spoil=spoil)) > 1e-3
