"""The CPU's tree attention against dense softmax attention, node by node."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from graft_sglang.contracts import DraftCandidates, DraftTree, EdgeScores
from graft_sglang.engine.cpu_attention import GraftCpuAttention
from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.verify_arrays import VerifyArraysMaker

HEADS, KV_HEADS, SIZE = 4, 2, 8
PREFIXES = torch.tensor([5, 9, 0])
BUDGETS = torch.tensor([6, 2, 9])


class KVPool:
    """One layer's KV cache."""

    def __init__(self) -> None:
        self.keys = torch.randn(64, KV_HEADS, SIZE)
        self.values = torch.randn(64, KV_HEADS, SIZE)

    def set_kv_buffer(self, layer: Any, location: Any, k: torch.Tensor, v: torch.Tensor) -> None:
        self.keys[location.loc] = k.view(-1, KV_HEADS, SIZE)
        self.values[location.loc] = v.view(-1, KV_HEADS, SIZE)

    def get_key_buffer(self, layer_id: int) -> torch.Tensor:
        return self.keys

    def get_value_buffer(self, layer_id: int) -> torch.Tensor:
        return self.values


@pytest.fixture
def tree() -> DraftTree:
    torch.manual_seed(0)
    log_probs = torch.log_softmax(torch.randn(3, 4, 6), -1).sort(-1, descending=True).values
    candidates = DraftCandidates(
        root=torch.tensor([1, 2, 3]),
        token_ids=torch.arange(6).expand(3, 4, 6).contiguous(),
        log_probs=log_probs,
        hidden_cosines=torch.zeros(3, 3),
    )
    return BestFirstTreeBuilder().build(candidates, EdgeScores(log_probs[:, :, None]), BUDGETS)


class Case:
    """A batch of three requests with windows as wide as the widest tree."""

    def __init__(self, tree: DraftTree, attn_type: Any = AttentionType.DECODER) -> None:
        torch.manual_seed(1)
        self.width = tree.token_ids.shape[1]
        self.pool = KVPool()
        slots = torch.randperm(63)[: int((PREFIXES + self.width).sum())] + 1
        self.table = torch.zeros(3, 32, dtype=torch.int32)
        start = 0
        for row, prefix in enumerate(PREFIXES.tolist()):
            self.table[row, : prefix + self.width] = slots[start : start + prefix + self.width]
            start += prefix + self.width
        window = torch.stack([self.table[r, p : p + self.width] for r, p in enumerate(PREFIXES)])
        self.q = torch.randn(3 * self.width, HEADS * SIZE)
        self.k = torch.randn(3 * self.width, KV_HEADS * SIZE)
        self.v = torch.randn(3 * self.width, KV_HEADS * SIZE)
        self.layer = SimpleNamespace(
            tp_q_head_num=HEADS, tp_k_head_num=KV_HEADS, qk_head_dim=SIZE, v_head_dim=SIZE,
            layer_id=0, scaling=1 / math.sqrt(SIZE), sliding_window_size=-1, attn_type=attn_type,
        )  # fmt: skip
        arrays = VerifyArraysMaker().make(tree, PREFIXES)
        self.mask = arrays.mask
        self.batch = SimpleNamespace(
            forward_mode=ForwardMode.TARGET_VERIFY, batch_size=3,
            out_cache_loc=window.flatten().long(), seq_lens=PREFIXES,
            req_pool_indices=torch.arange(3), positions=arrays.positions,
            spec_info=SimpleNamespace(custom_mask=self.mask),
        )  # fmt: skip

    def run(self) -> torch.Tensor:
        runner = SimpleNamespace(
            device="cpu", model=torch.nn.Module(), token_to_kv_pool=self.pool,
            req_to_token_pool=SimpleNamespace(req_to_token=self.table),
        )  # fmt: skip
        attention = GraftCpuAttention(runner)
        attention.init_forward_metadata(self.batch)
        out = attention.forward_extend(self.q, self.k, self.v, self.layer, self.batch)
        return out.view(3, self.width, HEADS, SIZE)

    def dense(self, row: int, node: int, visible: list[int]) -> torch.Tensor:
        """Softmax attention of one node over its prefix and the window nodes ``visible``."""
        prefix = int(PREFIXES[row])
        slots = [int(s) for s in self.table[row, :prefix]]
        slots += [int(self.table[row, prefix + v]) for v in visible]
        query = self.q.view(3, self.width, HEADS, SIZE)[row, node]
        keys = self.pool.keys[slots].repeat_interleave(HEADS // KV_HEADS, dim=1)
        values = self.pool.values[slots].repeat_interleave(HEADS // KV_HEADS, dim=1)
        weights = torch.einsum("hd,shd->hs", query, keys) / math.sqrt(SIZE)
        return torch.einsum("hs,shd->hd", weights.softmax(-1), values)


def ancestors(tree: DraftTree, row: int, node: int) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node = int(tree.parents[row, node])
    return path[::-1]


def test_every_node_equals_its_ancestor_chain(tree: DraftTree) -> None:
    """Unequal trees in one batch, scattered slots (faults 19, 20, 21)."""
    case = Case(tree)
    out = case.run()
    for row in range(3):
        for node in range(int(tree.num_nodes[row])):
            path = ancestors(tree, row, node)
            torch.testing.assert_close(out[row, node], case.dense(row, node, path))
    assert torch.isfinite(out).all()


def test_hiding_the_first_key_changes_the_output(tree: DraftTree) -> None:
    case = Case(tree)
    plain = case.run()
    total = int(PREFIXES[0]) + case.width
    case.batch.spec_info.custom_mask = case.mask.clone()
    case.batch.spec_info.custom_mask[: case.width * total : total] = False
    hidden = case.run()
    assert not torch.allclose(plain[0], hidden[0])
    torch.testing.assert_close(plain[1:], hidden[1:])


def test_a_causal_mask_equals_no_mask(tree: DraftTree) -> None:
    case = Case(tree)
    blocks = []
    for prefix in PREFIXES.tolist():
        block = torch.ones(case.width, prefix + case.width, dtype=torch.bool).tril(prefix)
        blocks.append(block.flatten())
    case.batch.spec_info.custom_mask = torch.cat(blocks)
    masked = case.run()
    case.batch.spec_info.custom_mask = None
    torch.testing.assert_close(masked, case.run())


def test_a_block_of_the_drafter_sees_everything(tree: DraftTree) -> None:
    case = Case(tree, AttentionType.ENCODER_ONLY)
    out = case.run()
    everything = list(range(case.width))
    for row in range(3):
        torch.testing.assert_close(out[row, 1], case.dense(row, 1, everything))


def test_a_mask_of_the_wrong_size_is_refused(tree: DraftTree) -> None:
    case = Case(tree)
    case.batch.spec_info.custom_mask = torch.cat([case.mask, torch.ones(1, dtype=torch.bool)])
    with pytest.raises(ValueError, match="the tree mask has"):
        case.run()


def test_a_sliding_window_hides_far_keys(tree: DraftTree) -> None:
    """Distance is in positions, not in columns: siblings stand at the same place."""
    case = Case(tree)
    case.layer.sliding_window_size = 3
    out = case.run()
    row, prefix = 1, int(PREFIXES[1])
    for node in range(int(tree.num_nodes[row])):
        position = prefix + int(tree.depths[row, node])
        near = [s for s in range(prefix) if s >= position - 3]
        slots = [int(case.table[row, s]) for s in near]
        slots += [int(case.table[row, prefix + a]) for a in ancestors(tree, row, node)
                  if prefix + int(tree.depths[row, a]) >= position - 3]  # fmt: skip
        query = case.q.view(3, case.width, HEADS, SIZE)[row, node]
        keys = case.pool.keys[slots].repeat_interleave(2, dim=1)
        values = case.pool.values[slots].repeat_interleave(2, dim=1)
        weights = (torch.einsum("hd,shd->hs", query, keys) / math.sqrt(SIZE)).softmax(-1)
        torch.testing.assert_close(out[row, node], torch.einsum("hs,shd->hd", weights, values))
