"""FlashInfer itself against its emulation, which the CPU's contract tests rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from flashinfer_reference import PagedPrefillReference
from random_trees import random_case

from graft_sglang.tree.best_first import BestFirstTreeBuilder
from graft_sglang.tree.masks.numpy_backend import full_mask, packed_mask

HEADS, KV_HEADS, SLOTS = 8, 2, 4096
PREFIXES = torch.tensor([0, 1, 700, 33, 64, 5])
CLOSE = 5e-3
"""Largest difference in float16 of outputs that are averages of unit normals."""


@dataclass
class Inputs:
    """Of a verify of six random trees, the plan's on the CPU."""

    plan: dict[str, Any]
    mask: torch.Tensor
    packed: torch.Tensor
    q: torch.Tensor
    cache: tuple[torch.Tensor, torch.Tensor]


def make(seed: int, head_dim: int, most: int) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    case = random_case(seed, len(PREFIXES), 9, 12, most)
    tree = BestFirstTreeBuilder().build(case.candidates, case.scores, case.budgets)
    width = tree.token_ids.shape[1]
    lengths = PREFIXES + width
    indices = torch.cat([torch.randperm(SLOTS, generator=generator)[:n] for n in lengths])
    shape = (SLOTS, 1, KV_HEADS, head_dim)
    keys, values = (torch.randn(shape, generator=generator).half() for _ in range(2))
    return Inputs(
        plan={
            "qo_indptr": torch.arange(len(PREFIXES) + 1, dtype=torch.int32) * width,
            "paged_kv_indptr": torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int(),
            "paged_kv_indices": indices.int(),
            "paged_kv_last_page_len": torch.ones(len(PREFIXES), dtype=torch.int32),
            "num_qo_heads": HEADS,
            "num_kv_heads": KV_HEADS,
            "head_dim_qk": head_dim,
            "page_size": 1,
        },
        mask=full_mask(tree, PREFIXES),
        packed=packed_mask(tree, PREFIXES)[0],
        q=torch.randn(len(PREFIXES) * width, HEADS, head_dim, generator=generator).half(),
        cache=(keys, values),
    )


def reference(inputs: Inputs) -> torch.Tensor:
    wrapper = PagedPrefillReference()
    wrapper.plan(**inputs.plan, custom_mask=inputs.mask)
    keys, values = inputs.cache
    return wrapper.run(inputs.q.float(), (keys.float(), values.float()))


def on_gpu(wrapper: Any, inputs: Inputs, **mask: torch.Tensor) -> torch.Tensor:
    plan = {k: v.cuda() if torch.is_tensor(v) else v for k, v in inputs.plan.items()}
    wrapper.plan(
        **plan, q_data_type=torch.float16, kv_data_type=torch.float16,
        **{name: value.cuda() for name, value in mask.items()},
    )  # fmt: skip
    out = wrapper.run(inputs.q.cuda(), tuple(part.cuda() for part in inputs.cache))
    return out.float().cpu()


def wrapper(**buffers: Any) -> Any:
    from flashinfer import BatchPrefillWithPagedKVCacheWrapper

    workspace = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    return BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend="fa2", **buffers)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("most", [3, 64, 200])
def test_it_does_what_the_emulation_does(head_dim: int, most: int) -> None:
    inputs = make(most, head_dim, most)
    expected = reference(inputs)
    plain = on_gpu(wrapper(), inputs, custom_mask=inputs.mask)
    torch.testing.assert_close(plain, expected, rtol=0, atol=CLOSE)
    packed = on_gpu(wrapper(), inputs, packed_custom_mask=inputs.packed)
    assert torch.equal(packed, plain)


def test_more_mask_than_is_needed_changes_nothing() -> None:
    """SGLang fills up a mask that it takes to be too short."""
    inputs = make(1, 64, 64)
    longer = torch.cat((inputs.mask, torch.ones(5000, dtype=torch.bool)))
    plain = on_gpu(wrapper(), inputs, custom_mask=inputs.mask)
    assert torch.equal(on_gpu(wrapper(), inputs, custom_mask=longer), plain)


def test_a_captured_wrapper_forgets_the_batch_before() -> None:
    """As SGLang makes it: its buffers stay, and the second batch needs less of them."""
    size = len(PREFIXES)
    captured = wrapper(
        use_cuda_graph=True,
        qo_indptr_buf=torch.zeros(size + 1, dtype=torch.int32, device="cuda"),
        paged_kv_indptr_buf=torch.zeros(size + 1, dtype=torch.int32, device="cuda"),
        paged_kv_indices_buf=torch.zeros(1 << 16, dtype=torch.int32, device="cuda"),
        paged_kv_last_page_len_buf=torch.ones(size, dtype=torch.int32, device="cuda"),
        custom_mask_buf=torch.zeros(1 << 24, dtype=torch.uint8, device="cuda"),
        mask_indptr_buf=torch.zeros(size + 1, dtype=torch.int32, device="cuda"),
    )
    for most in (200, 20):
        inputs = make(most, 64, most)
        found = on_gpu(captured, inputs, custom_mask=inputs.mask)
        torch.testing.assert_close(found, reference(inputs), rtol=0, atol=CLOSE)
