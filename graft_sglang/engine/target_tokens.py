"""The target's own token at the nodes of a tree: "sample, then match".

At every node that the walk reaches, the target draws the token it would draw without
speculation, from the same adjusted distribution with the same sampler; the walk then goes to the
child that holds it. What is committed is therefore exactly a sample of the target, at any
temperature, however the tree was built.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessorOutput

from graft_sglang.contracts import DraftTree


def adjust_logits(
    logits: torch.Tensor, batch: Any, depths: torch.Tensor, prefix_lens: list[int]
) -> None:
    """Add what SGLang adds before it samples: ``logit_bias`` and ``min_new_tokens``, in place.

    Args:
        logits: [bs * width, V], one row a node.
        batch: the ``ScheduleBatch``.
        depths: int [bs, width], depth of each node.
        prefix_lens: committed tokens with KV of each request.
    """
    info = batch.sampling_info
    per_node = logits.view(depths.shape[0], depths.shape[1], -1)
    if info.logit_bias is not None:
        per_node.add_(info.logit_bias[:, None, :].to(per_node.dtype))
    for row, req in enumerate(batch.reqs):
        wanted = req.sampling_params.min_new_tokens
        if not wanted:
            continue
        generated = prefix_lens[row] + 1 - len(req.origin_input_ids) + depths[row]
        early = (generated < wanted).nonzero(as_tuple=True)[0]
        stops = torch.tensor(sorted(_stop_ids(req)), dtype=torch.long, device=logits.device)
        if early.numel() and stops.numel():
            per_node[row, early[:, None], stops[None, :]] = float("-inf")


def _stop_ids(req: Any) -> set[int]:
    tokenizer = req.tokenizer
    found = set(req.sampling_params.stop_token_ids or ()) | set(req.eos_token_ids or ())
    if tokenizer is not None:
        found |= set(getattr(tokenizer, "additional_stop_token_ids", None) or ())
        found.add(tokenizer.eos_token_id)
    return {token for token in found if token is not None}


def greedy_tokens(logits: torch.Tensor, batch_size: int) -> torch.Tensor:
    """The target's argmax at every node, int64 [bs, width]."""
    return logits.argmax(dim=-1).view(batch_size, -1)


def sampled_tokens(
    logits: torch.Tensor, tree: DraftTree, sampler: Any, info: Any, positions: torch.Tensor
) -> torch.Tensor:
    """The target's draw at every node that the walk reaches, -1 elsewhere.

    Nodes are drawn depth by depth, only where the walk is: sampling with top-p sorts a whole
    vocabulary a row, and most nodes are never reached.

    Args:
        logits: [bs * width, V], adjusted and masked; left as it is.
        tree: on the CPU, ``width`` nodes wide.
        sampler: SGLang's ``Sampler`` of the target.
        info: the batch's ``SamplingBatchInfo``.
        positions: int64 [bs * width], position of each node's token (what seeds are hashed with).

    Returns:
        int64 [bs, width] on the CPU.
    """
    batch_size, width = tree.token_ids.shape
    tokens = torch.full((batch_size, width), -1, dtype=torch.int64)
    rows = torch.arange(batch_size)
    nodes = torch.zeros(batch_size, dtype=torch.int64)
    while rows.numel():
        flat = (rows * width + nodes).to(logits.device)
        drawn = _draw(logits[flat], sampler, info, rows.to(logits.device), positions[flat])
        drawn = drawn.to("cpu", torch.int64)
        tokens[rows, nodes] = drawn
        is_child = (tree.parents[rows] == nodes[:, None]) & (tree.token_ids[rows] == drawn[:, None])
        went = is_child.any(dim=1)
        nodes = is_child.to(torch.int8).argmax(dim=1)[went]
        rows = rows[went]
    return tokens


def _draw(
    logits: torch.Tensor, sampler: Any, info: Any, rows: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """One draw a row with SGLang's own sampler; greedy requests take the argmax."""
    view = copy.copy(info)
    view.temperatures = info.temperatures[rows]
    view.top_ps, view.top_ks, view.min_ps = info.top_ps[rows], info.top_ks[rows], info.min_ps[rows]
    view.sampling_seed = None if info.sampling_seed is None else info.sampling_seed[rows]
    view.has_custom_logit_processor = False
    view.sampling_mask_batch_indices = None
    view.grammars = None
    greedy = view.top_ks <= 1
    best = logits.argmax(dim=-1)
    drawn = sampler(LogitsProcessorOutput(next_token_logits=logits), view, False, [], [], positions)
    return torch.where(greedy, best.to(drawn.dtype), drawn)
