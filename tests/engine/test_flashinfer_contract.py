"""What our verify hands to FlashInfer gives every node the logits of its own ancestor chain.

``verify_case.py`` says which parts are SGLang's own. Page size is the pool's: SGLang calls
FlashInfer with pages of one token whatever it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from flashinfer.prefill import _compute_page_mask_indptr
from flashinfer_reference import PagedPrefillReference, pack_bits, unpack_bits
from verify_case import BUDGETS, PREFIXES, Case, Target, make_case, node_logits

from graft_sglang.engine.graph_ladder import padded_tree
from graft_sglang.tree.masks.numba_backend import packed_mask

EQUAL, UNEQUAL = 1e-9, 1e-3
WIDTH = max(BUDGETS) + 1


def captured(masked: bool = True) -> PagedPrefillReference:
    """A wrapper as a graph keeps it, its mask buffer full of another batch's."""
    mask = torch.full((1 << 16,), 255, dtype=torch.uint8) if masked else None
    return PagedPrefillReference(use_cuda_graph=True, custom_mask_buf=mask)


@pytest.fixture(params=[1, 16], ids="page {}".format)
def case(request: pytest.FixtureRequest) -> Case:
    return make_case(request.param)


def test_nodes_see_their_ancestor_chains(case: Case) -> None:
    logits = node_logits(Target(case, PagedPrefillReference()))
    assert case.largest_error(logits) < EQUAL


@pytest.mark.parametrize("padded", [0, 1, 5])
def test_so_they_do_in_a_captured_batch(case: Case, padded: int) -> None:
    """Filled up as SGLang fills it; the second round finds what the first left in the buffers."""
    wrapper = captured()
    wide = padded_tree(case.tree, WIDTH + 40)
    node_logits(Target(case, wrapper, padded + 1), wide)
    logits = node_logits(Target(case, wrapper, padded))
    assert case.largest_error(logits) < EQUAL


def test_a_tree_padded_to_a_captured_width_says_the_same(case: Case) -> None:
    """Also beyond 64 nodes, where ancestors take another word."""
    narrow = node_logits(Target(case, PagedPrefillReference()))
    wide = node_logits(Target(case, captured(), 2), padded_tree(case.tree, 70))
    torch.testing.assert_close(wide[:, :WIDTH], narrow, rtol=0, atol=EQUAL)


def test_a_graph_captured_without_a_mask_takes_no_tree() -> None:
    with pytest.raises(ValueError, match="custom_mask_buf must be initialized"):
        node_logits(Target(make_case(1), captured(masked=False)))


def test_a_graph_captured_with_a_mask_takes_nothing_else() -> None:
    def unmask(forward: Any) -> None:
        forward.spec_info.custom_mask = None

    with pytest.raises(RuntimeError, match="planned without a custom mask"):
        node_logits(Target(make_case(1), captured(), spoil=unmask))


def test_packed_by_us_it_is_the_mask_that_flashinfer_packs() -> None:
    """The bits, and the bytes at which flashinfer's own code says that the requests begin."""
    case = make_case(1)
    wrapper = PagedPrefillReference()
    node_logits(Target(case, wrapper))
    ours, starts = packed_mask(case.tree, torch.tensor(PREFIXES))
    assert torch.equal(ours, wrapper._custom_mask_buf)
    bits = _compute_page_mask_indptr(
        wrapper.qo_indptr, wrapper.kv_indptr, wrapper.last_page_len, wrapper.page_size
    )
    assert torch.equal(starts.diff(), (bits.diff() + 7) // 8)


@pytest.mark.parametrize("count", [1, 8, 13])
def test_the_reference_packs_as_numpy_does(count: int) -> None:
    import numpy as np

    bits = torch.rand(count, generator=torch.Generator().manual_seed(count)) < 0.5
    assert pack_bits(bits).tolist() == np.packbits(bits.numpy(), bitorder="little").tolist()
    assert torch.equal(unpack_bits(pack_bits(bits), count), bits)


def test_the_reference_reads_pages_of_several_tokens() -> None:
    """FlashInfer's own meaning of pages: the last one is filled in part."""
    generator = torch.Generator().manual_seed(0)
    cache = torch.randn(2, 6, 4, 2, 8, generator=generator)
    q = torch.randn(3, 4, 8, generator=generator)
    mask = torch.rand(3, 10, generator=generator) < 0.7
    mask[:, 0] = True
    plans = {4: ([4, 1, 3], 2), 1: ([16, 17, 18, 19, 4, 5, 6, 7, 12, 13], 1)}
    outputs = []
    for page_size, (pages, last) in plans.items():
        wrapper = PagedPrefillReference()
        wrapper.plan(
            torch.tensor([0, 3]), torch.tensor([0, len(pages)]), torch.tensor(pages),
            torch.tensor([last]), 4, 2, 8, page_size, custom_mask=mask.flatten(),
        )  # fmt: skip
        keys, values = cache.view(2, -1, page_size, 2, 8)
        outputs.append(wrapper.run(q, (keys, values)))
    torch.testing.assert_close(*outputs)


def test_the_index_kernel_is_sglangs() -> None:
    folder = Path(__file__).parent
    run = subprocess.run(
        [sys.executable, str(folder / "interpreted_indices.py")],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.split() == ["equal"]


def _flip_a_bit(forward: Any) -> None:
    forward.spec_info.custom_mask = forward.spec_info.custom_mask.clone()
    forward.spec_info.custom_mask[2] ^= True


def _shift_the_mask(forward: Any) -> None:
    """The mask of one entry more before it: what a wrong prefix length of one request does."""
    forward.spec_info.custom_mask = forward.spec_info.custom_mask.roll(1)


def _causal(forward: Any) -> None:
    """What a verify captured without a mask would do: trees read as chains."""
    blocks = [torch.ones(WIDTH, n + WIDTH, dtype=torch.bool).tril(n).flatten() for n in PREFIXES]
    forward.spec_info.custom_mask = torch.cat(blocks)


def _swap_requests(forward: Any) -> None:
    forward.req_pool_indices = forward.req_pool_indices[[1, 0, 2]]


def _shorten_a_prefix(forward: Any) -> None:
    forward.seq_lens = forward.seq_lens - torch.tensor([1, 0, 0], dtype=torch.int32)


def _consecutive_positions(forward: Any) -> None:
    starts = torch.tensor(PREFIXES)[:, None]
    forward.positions = (starts + torch.arange(WIDTH)).flatten()


@pytest.mark.parametrize(
    "spoil",
    [
        _flip_a_bit, _shift_the_mask, _causal, _swap_requests, _shorten_a_prefix,
        _consecutive_positions,
    ],
)  # fmt: skip
def test_a_wrong_array_would_show(spoil: Any) -> None:
    case = make_case(1)
    assert case.largest_error(node_logits(Target(case, PagedPrefillReference()))) < EQUAL
    spoiled = node_logits(Target(case, PagedPrefillReference(), spoil=spoil))
    assert case.largest_error(spoiled) > UNEQUAL
