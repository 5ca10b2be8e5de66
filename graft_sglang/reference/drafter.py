"""The DFlash draft model as a torch module, to train and to run.

Weight names and ``config.json`` follow the public DFlash layout. The module holds neither embedding
nor head: both are the target's.

Shapes used below: ``B`` sequences, ``L`` context tokens, ``N`` anchors (draft rounds) a sequence,
``S`` block size, ``H`` hidden size, ``F`` number of target layers read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from graft_sglang.reference.config import DrafterConfig, UnknownDrafter


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class DraftAttention(nn.Module):
    """Block queries over the visible context and their own whole block (no causal mask)."""

    def __init__(self, cfg: DrafterConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = (
            cfg.num_attention_heads,
            cfg.num_key_value_heads,
            cfg.head_dim,
        )
        kv_size = self.kv_heads * self.head_dim
        self.q_proj = nn.Linear(cfg.hidden_size, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(cfg.hidden_size, kv_size, bias=False)
        self.v_proj = nn.Linear(cfg.hidden_size, kv_size, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, cfg.hidden_size, bias=False)
        self.q_norm = RMSNorm(self.head_dim, cfg.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, cfg.rms_norm_eps)

    def _rotate(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        """Rotary embedding, half-split layout; cos and sin broadcast against ``x``."""
        cos, sin = (part.to(x.dtype) for part in rope)
        low, high = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-high, low), dim=-1) * sin

    def _keys_values(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """[..., H] -> keys and values [..., kv_heads, head_dim]."""
        shape = (*x.shape[:-1], self.kv_heads, self.head_dim)
        keys = self._rotate(self.k_norm(self.k_proj(x).view(shape)), rope)
        return keys, self.v_proj(x).view(shape)

    def forward(
        self,
        block: Tensor,
        context: Tensor,
        hidden_context: Tensor,
        block_rope: tuple[Tensor, Tensor],
        context_rope: tuple[Tensor, Tensor],
    ) -> Tensor:
        """block [B, N, S, H], context [B, L, H], hidden_context bool [B, N, L] (True = unseen)."""
        b, n, s, _ = block.shape
        groups, d = self.heads // self.kv_heads, self.head_dim
        q = self.q_norm(self.q_proj(block).view(b, n, s, self.heads, d))
        q = self._rotate(q, block_rope).view(b, n, s, self.kv_heads, groups, d)
        q = q.permute(0, 3, 1, 4, 2, 5).reshape(b, self.kv_heads, n, groups * s, d) * d**-0.5
        k_block, v_block = (t.permute(0, 3, 1, 2, 4) for t in self._keys_values(block, block_rope))
        k_ctx, v_ctx = (t.transpose(1, 2) for t in self._keys_values(context, context_rope))
        flat = q.reshape(b, self.kv_heads, n * groups * s, d)
        to_ctx = (flat @ k_ctx.transpose(-1, -2)).view(b, self.kv_heads, n, groups * s, -1)
        to_ctx = to_ctx.masked_fill(
            hidden_context[:, None, :, None, :], torch.finfo(to_ctx.dtype).min
        )
        to_block = q @ k_block.transpose(-1, -2)
        length = context.shape[1]
        weights = torch.cat((to_ctx, to_block), dim=-1).softmax(dim=-1)
        w_ctx, w_block = weights[..., :length], weights[..., length:]
        out = (w_ctx.reshape(b, self.kv_heads, n * groups * s, length) @ v_ctx).view_as(q)
        out = out + w_block @ v_block
        out = out.view(b, self.kv_heads, n, groups, s, d).permute(0, 2, 4, 1, 3, 5)
        return self.o_proj(out.reshape(b, n, s, self.heads * d))


class DraftMLP(nn.Module):
    """Gated SiLU MLP."""

    def __init__(self, cfg: DrafterConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(cfg.hidden_size, cfg.intermediate_size, bias=False)
        self.up_proj = nn.Linear(cfg.hidden_size, cfg.intermediate_size, bias=False)
        self.down_proj = nn.Linear(cfg.intermediate_size, cfg.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DraftLayer(nn.Module):
    """Pre-norm decoder layer of the drafter."""

    def __init__(self, cfg: DrafterConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
        self.self_attn = DraftAttention(cfg)
        self.post_attention_layernorm = RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
        self.mlp = DraftMLP(cfg)

    def forward(self, block: Tensor, *attention_inputs: Any) -> Tensor:
        block = block + self.self_attn(self.input_layernorm(block), *attention_inputs)
        return block + self.mlp(self.post_attention_layernorm(block))


class DFlashDrafter(nn.Module):
    """Block drafter: one forward gives the hidden states of ``S - 1`` future tokens."""

    def __init__(self, cfg: DrafterConfig) -> None:
        super().__init__()
        self.cfg = cfg
        features = len(cfg.target_layer_ids) * cfg.hidden_size
        self.fc = nn.Linear(features, cfg.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
        self.layers = nn.ModuleList(DraftLayer(cfg) for _ in range(cfg.num_hidden_layers))
        self.norm = RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)

    def _rope(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions int [...] -> cos and sin float32 [..., 1, head_dim]."""
        half = torch.arange(0, self.cfg.head_dim, 2, dtype=torch.float32, device=positions.device)
        frequencies = self.cfg.rope_theta ** (-half / self.cfg.head_dim)
        angles = positions[..., None].float() * frequencies
        angles = torch.cat((angles, angles), dim=-1)[..., None, :]
        return angles.cos(), angles.sin()

    def forward(self, features: Tensor, block_embeds: Tensor, anchors: Tensor) -> Tensor:
        """Draft all anchors of a batch at once.

        features: [B, L, F * H], the target's hidden states of tokens 0 .. L - 1.
        block_embeds: [B, N, S, H], target embeddings of (token at the anchor, mask, ...).
        anchors: int64 [B, N], position of the last committed token; context = positions before it.
        Returns [B, N, S, H] after the final norm; slot j predicts the token at anchor + j.
        """
        context = self.hidden_norm(self.fc(features))
        places = torch.arange(context.shape[1], device=context.device)
        block_places = torch.arange(block_embeds.shape[2], device=context.device)
        block_positions = anchors[..., None] + block_places
        hidden_context = places >= anchors[..., None]
        ropes = self._rope(block_positions), self._rope(places)
        block = block_embeds
        for layer in self.layers:
            block = layer(block, context, hidden_context, *ropes)
        return self.norm(block)

    def block_embeds(self, embedding: Tensor, tokens: Tensor) -> Tensor:
        """embedding [V, H] and committed tokens int64 [B, N] -> [B, N, S, H]."""
        ids = tokens.new_full((*tokens.shape, self.cfg.block_size), self.cfg.mask_token_id)
        ids[..., 0] = tokens
        return F.embedding(ids, embedding)


def load_drafter(
    folder: Path, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
) -> DFlashDrafter:
    """Load a saved drafter.

    Raises:
        UnknownDrafter: its configuration or its weights are not those of a plain DFlash drafter.
    """
    cfg = DrafterConfig.from_hf(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    drafter = DFlashDrafter(cfg)
    weights: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        weights |= load_file(path)
    try:
        drafter.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    except RuntimeError as error:
        raise UnknownDrafter(f"its weights are other ones: {error}") from error
    return drafter.to(device, dtype).eval()
