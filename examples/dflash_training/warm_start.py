"""Start the drafter from the target's last layers, whose widths it shares."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from graft_sglang.reference.drafter import DFlashDrafter


def head_rms(weight: Tensor, inputs: Tensor, head_dim: int) -> float:
    """Typical root-mean-square of a projection's per-head vectors over ``inputs`` [L, H]."""
    return (inputs @ weight.T).view(-1, head_dim).pow(2).mean().sqrt().item()


@torch.no_grad()
def warm_start(drafter: DFlashDrafter, target: PreTrainedModel, sample: Tensor) -> None:
    """Copy the last layers, final norm and input norms; the context passes the deepest feature.

    The deepest feature the drafter reads is close to the input of the copied layers, so their key
    and value projections fit it. Where the target has no query and key norms, theirs start at the
    typical size of its queries and keys, taken over ``sample`` (token ids int64 [1, L]).
    """
    cfg, layers = drafter.cfg, target.model.layers
    first = cfg.num_target_layers - cfg.num_hidden_layers
    states = target.model(input_ids=sample, output_hidden_states=True).hidden_states
    drafter.fc.weight.mul_(0.2)
    drafter.fc.weight[:, -cfg.hidden_size :] += torch.eye(cfg.hidden_size)
    drafter.hidden_norm.weight.copy_(layers[first].input_layernorm.weight)
    drafter.norm.weight.copy_(target.model.norm.weight)
    for index, layer in enumerate(drafter.layers):
        source = layers[first + index]
        own = dict(source.named_parameters())
        for name, parameter in layer.named_parameters():
            if name in own:
                parameter.copy_(own[name])
        if "self_attn.q_norm.weight" in own:
            continue
        inputs = source.input_layernorm(states[first + index][0])
        attention = source.self_attn
        for norm, projection in (
            (layer.self_attn.q_norm, attention.q_proj),
            (layer.self_attn.k_norm, attention.k_proj),
        ):
            norm.weight.fill_(head_rms(projection.weight, inputs, cfg.head_dim))
