"""What a drafter learns from: the target's hidden states and likely tokens, cached on disk.

The cache is written sequence by sequence and can be resumed, and read while it's still growing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel

from .sequences import TokenSequence, pad_right


@dataclass(frozen=True)
class Soft:
    """The target's most likely next tokens after each position.

    ids: int64 [L, K]; probs: float32 [L, K], full-vocabulary softmax. Rows before the response's
    boundary - 1 are zero.
    """

    ids: Tensor
    probs: Tensor


class TeacherCache:
    """Memory-mapped features float16 [tokens, F * H] and top-K ids and probabilities."""

    def __init__(
        self, folder: Path, sequences: Sequence[TokenSequence], width: int, top: int
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.sequences, self.top = sequences, top
        self.starts = np.cumsum([0] + [len(s.tokens) for s in sequences])
        total = int(self.starts[-1])
        self._state = folder / "state.json"

        def array(name: str, columns: int, dtype: type) -> np.memmap:
            path = folder / name
            mode = "r+" if path.exists() else "w+"
            return np.memmap(path, dtype=dtype, mode=mode, shape=(total, columns))

        self._features = array("features.f16", width, np.float16)
        self._ids = array("top_ids.i32", top, np.int32)
        self._probs = array("top_probs.f16", top, np.float16)

    def available(self) -> int:
        """How many sequences, from the first, are complete."""
        return json.loads(self._state.read_text())["done"] if self._state.exists() else 0

    def features(self, index: int) -> Tensor:
        """float32 [L, F * H] of one sequence."""
        rows = self._features[self.starts[index] : self.starts[index + 1]]
        return torch.from_numpy(rows.astype(np.float32))

    def soft(self, index: int) -> Soft:
        """The target's top tokens of one sequence."""
        span = slice(self.starts[index], self.starts[index + 1])
        return Soft(
            torch.from_numpy(self._ids[span].astype(np.int64)),
            torch.from_numpy(self._probs[span].astype(np.float32)),
        )

    @torch.no_grad()
    def fill(self, target: PreTrainedModel, layer_ids: Sequence[int]) -> None:
        """Run the target over every sequence that isn't done yet."""
        head = target.get_output_embeddings()
        first = self.available()
        bar = tqdm(
            range(first, len(self.sequences)),
            initial=first,
            total=len(self.sequences),
            desc="teacher",
            mininterval=10,
        )
        for index in bar:
            sequence = self.sequences[index]
            ids = torch.tensor([sequence.tokens])
            out = target.model(input_ids=ids, output_hidden_states=True, use_cache=False)
            features = torch.cat([out.hidden_states[i + 1][0] for i in layer_ids], dim=-1)
            span = slice(self.starts[index], self.starts[index + 1])
            self._features[span] = features.half().numpy()
            answered = out.last_hidden_state[0, sequence.boundary - 1 :]
            probs, top_ids = head(answered).float().softmax(-1).topk(self.top)
            span = slice(self.starts[index] + sequence.boundary - 1, self.starts[index + 1])
            self._ids[span] = top_ids.numpy()
            self._probs[span] = probs.half().numpy()
            if (index + 1) % 16 == 0 or index + 1 == len(self.sequences):
                self._state.write_text(json.dumps({"done": index + 1}))


class TeacherMemory:
    """The same facts held in memory, for targets small enough to run whole batches at once."""

    def __init__(
        self,
        target: PreTrainedModel,
        sequences: Sequence[TokenSequence],
        layer_ids: Sequence[int],
        top: int,
        batch: int = 32,
    ) -> None:
        self.sequences = sequences
        self._features: dict[int, Tensor] = {}
        self._soft: dict[int, Soft] = {}
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i].tokens))
        for start in tqdm(range(0, len(order), batch), desc="teacher", mininterval=5):
            self._read(target, order[start : start + batch], layer_ids, top)

    @torch.no_grad()
    def _read(
        self, target: PreTrainedModel, chosen: list[int], layer_ids: Sequence[int], top: int
    ) -> None:
        ids = pad_right([self.sequences[i].tokens for i in chosen], 0)
        out = target(input_ids=ids, output_hidden_states=True, use_cache=False)
        features = torch.cat([out.hidden_states[i + 1] for i in layer_ids], dim=-1)
        probs, top_ids = out.logits.float().softmax(-1).topk(top)
        for row, i in enumerate(chosen):
            length = len(self.sequences[i].tokens)
            self._features[i] = features[row, :length].half()
            self._soft[i] = Soft(top_ids[row, :length].clone(), probs[row, :length].clone())

    def available(self) -> int:
        """All of them."""
        return len(self.sequences)

    def features(self, index: int) -> Tensor:
        """float32 [L, F * H] of one sequence."""
        return self._features[index].float()

    def soft(self, index: int) -> Soft:
        """The target's top tokens of one sequence."""
        return self._soft[index]
