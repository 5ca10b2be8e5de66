"""The drafter-training library: format, batching, losses, resuming, and lossless decoding."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from examples.dflash_training.drafter import save_drafter
from examples.dflash_training.evaluate import check_identity
from examples.dflash_training.fit import FitPlan, fit_drafter
from examples.dflash_training.losses import Vocabulary, block_losses, soft_labels
from examples.dflash_training.optim import orthogonalise, schedule
from examples.dflash_training.replay import replay
from examples.dflash_training.sequences import TokenSequence, generate, repeated_share
from examples.dflash_training.teacher import Soft, TeacherCache, TeacherMemory
from examples.dflash_training.train import LoopConfig
from graft_sglang.reference.config import DrafterConfig, default_target_layer_ids
from graft_sglang.reference.drafter import DFlashDrafter, load_drafter
from graft_sglang.reference.tree import best_first_tree

VOCAB, HIDDEN, LAYERS, STOP = 61, 32, 5, 60


@pytest.fixture(scope="module")
def target() -> Qwen3ForCausalLM:
    torch.manual_seed(1)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.2,
        eos_token_id=STOP,
        pad_token_id=STOP,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config).eval()


def drafter_of(block: int = 6) -> DFlashDrafter:
    torch.manual_seed(2)
    return DFlashDrafter(
        DrafterConfig(
            vocab_size=VOCAB,
            hidden_size=HIDDEN,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            rope_theta=10_000.0,
            rms_norm_eps=1e-6,
            max_position_embeddings=256,
            block_size=block,
            num_target_layers=LAYERS,
            target_layer_ids=tuple(default_target_layer_ids(LAYERS, 2)),
            mask_token_id=3,
            mask_token="<mask>",
        )
    ).eval()


@pytest.fixture(scope="module")
def answers(target: Qwen3ForCausalLM) -> list[TokenSequence]:
    generator = torch.Generator().manual_seed(5)
    prompts = [
        torch.randint(4, VOCAB - 1, (n,), generator=generator).tolist() for n in (5, 9, 14, 20)
    ]
    responses = generate(target, prompts, 24, [STOP], batch=2)
    return [TokenSequence(p + r, len(p)) for p, r in zip(prompts, responses, strict=True)]


def test_layer_rule_is_dflashs() -> None:
    assert default_target_layer_ids(36, 5) == [1, 9, 17, 25, 33]
    assert default_target_layer_ids(30, 3) == [1, 14, 27]
    assert default_target_layer_ids(30, 1) == [15]


def test_saved_drafter_has_the_public_names_and_reloads(tmp_path: Path) -> None:
    drafter = drafter_of()
    save_drafter(drafter, tmp_path)
    document = json.loads((tmp_path / "config.json").read_text())
    assert document["architectures"] == ["DFlashDraftModel"]
    assert document["block_size"] == 6
    assert document["num_target_layers"] == LAYERS
    assert document["dflash_config"]["target_layer_ids"] == [1, 2]
    again = load_drafter(tmp_path)
    assert again.cfg == drafter.cfg
    names = set(again.state_dict())
    assert {"fc.weight", "hidden_norm.weight", "norm.weight"} <= names
    assert "layers.1.self_attn.q_norm.weight" in names
    for name, tensor in drafter.state_dict().items():
        assert torch.equal(tensor.to(torch.bfloat16).float(), again.state_dict()[name])


def test_batched_anchors_equal_single_drafts() -> None:
    """Padding, other anchors and tokens at or after the anchor don't change a draft."""
    drafter = drafter_of()
    torch.manual_seed(3)
    features = torch.randn(2, 20, 2 * HIDDEN)
    anchors = torch.tensor([[4, 11, 19], [7, 8, 13]])
    embeds = torch.randn(2, 3, 6, HIDDEN)
    together = drafter(features, embeds, anchors)
    for row, column in itertools.product(range(2), range(3)):
        at = int(anchors[row, column])
        alone = drafter(
            features[row : row + 1, :at],
            embeds[row : row + 1, column : column + 1],
            anchors[row : row + 1, column : column + 1],
        )
        torch.testing.assert_close(alone[0, 0], together[row, column], atol=1e-5, rtol=1e-4)


def test_tree_is_the_best_nodes_and_nested() -> None:
    rows = [[-0.1, -2.0, -3.0], [-0.5, -0.9, -4.0], [-0.7, -0.8, -0.9]]
    nodes = best_first_tree(rows, 20)
    scores = [0.0]
    for parent, depth, rank in nodes[1:]:
        scores.append(scores[parent] + rows[depth - 1][rank])
    every = [
        sum(rows[d][r] for d, r in enumerate(path))
        for depth in (1, 2, 3)
        for path in itertools.product(range(3), repeat=depth)
    ]
    assert scores[1:] == pytest.approx(sorted(every, reverse=True)[:20])
    assert best_first_tree(rows, 7) == nodes[:8]


@pytest.mark.parametrize("shape", [(24, 40), (40, 24)])
def test_orthogonalise_brings_singular_values_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(4)
    values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
    assert values.min() > 0.5
    assert values.max() < 1.5


def test_schedule_warms_up_and_decays() -> None:
    assert schedule(0, 100, 10) == pytest.approx(0.1)
    assert schedule(10, 100, 10) == pytest.approx(1.0)
    assert schedule(100, 100, 10) == pytest.approx(0.02)


def test_repeated_share() -> None:
    assert repeated_share([1, 2, 3, 4, 5, 6]) == 0
    assert repeated_share([1, 2, 3, 4] * 3) == pytest.approx(1 - 4 / 9)


def test_soft_labels_are_distributions_and_hard_ones_plain_cross_entropy() -> None:
    labels = torch.tensor([[[2, 5, -100]]])
    soft = Soft(torch.tensor([[[[2, 7], [5, 1], [0, 0]]]]), torch.full((1, 1, 3, 2), 0.25))
    _, probs = soft_labels(labels, soft, 0.5)
    assert torch.allclose(probs.sum(-1), torch.ones(1, 1, 3))
    torch.manual_seed(6)
    hidden, head = torch.randn(1, 1, 3, HIDDEN), torch.randn(VOCAB, HIDDEN)
    ids, probs = soft_labels(labels, soft, 0.0)
    losses, _ = block_losses(hidden, Vocabulary(head, [], None), ids, probs, labels)
    plain = torch.nn.functional.cross_entropy(
        (hidden @ head.T)[0, 0, :2], labels[0, 0, :2], reduction="none"
    )
    torch.testing.assert_close(losses[0, 0, :2], plain)


def test_shortlist_covers_every_label() -> None:
    head = torch.randn(VOCAB, HIDDEN)
    rows, indices = Vocabulary(head, [1, 1, 2], 1).cover(torch.tensor([[40, 9]]))
    assert len(rows) == 3
    assert torch.equal(rows[indices], head[torch.tensor([[40, 9]])])


def test_disk_cache_equals_memory_and_resumes(
    target: Qwen3ForCausalLM, answers: list[TokenSequence], tmp_path: Path
) -> None:
    memory = TeacherMemory(target, answers, (1, 2), top=4, batch=2)
    first = TeacherCache(tmp_path, answers, 2 * HIDDEN, 4)
    assert first.available() == 0
    first.fill(target, (1, 2))
    again = TeacherCache(tmp_path, answers, 2 * HIDDEN, 4)
    assert again.available() == len(answers)
    for i, answer in enumerate(answers):
        torch.testing.assert_close(again.features(i), memory.features(i), atol=2e-3, rtol=2e-3)
        span = slice(answer.boundary - 1, None)
        assert torch.equal(again.soft(i).ids[span, 0], memory.soft(i).ids[span, 0])


def test_resumed_training_equals_uninterrupted(
    target: Qwen3ForCausalLM, answers: list[TokenSequence], tmp_path: Path
) -> None:
    teacher = TeacherMemory(target, answers, (1, 2), top=4)
    embedding = target.get_input_embeddings().weight.detach()
    plan = FitPlan(batch=2, anchors=5, decay=3.0, soft_share=0.5)

    def train(steps: list[int], name: str) -> DFlashDrafter:
        for until in steps:
            drafter = drafter_of()
            # One schedule for all: only the moment of stopping differs.
            loop = LoopConfig(until, 1e-3, warmup=10**6, seed=7, checkpoint_every=3)
            fit_drafter(drafter, embedding, embedding, teacher, plan, loop, tmp_path / name)
        return drafter

    straight, resumed = train([6], "a.pt"), train([3, 6], "b.pt")
    for one, other in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_training_lowers_the_loss_and_decoding_stays_lossless(
    target: Qwen3ForCausalLM, answers: list[TokenSequence], tmp_path: Path
) -> None:
    teacher = TeacherMemory(target, answers, (1, 2), top=4)
    embedding = target.get_input_embeddings().weight.detach()
    drafter = drafter_of()
    plan = FitPlan(batch=4, anchors=16, decay=3.0, soft_share=0.2)
    log = fit_drafter(
        drafter,
        embedding,
        embedding,
        teacher,
        plan,
        LoopConfig(60, 5e-3, warmup=5, seed=8),
        tmp_path / "c.pt",
    )
    assert log[-2]["loss"] < 0.5 * log[0]["loss"]
    prompts = [a.tokens[: a.boundary] for a in answers]
    report = check_identity(target, drafter, prompts, 24, [STOP], (0, 4, 16))
    assert all(r["identical"] == r["prompts"] for r in report.values())
    assert report["chain"]["mat"] > 1
    replayed = replay(drafter, embedding, embedding, teacher, range(len(answers)))
    assert replayed["tree128"]["mat"] >= replayed["tree16"]["mat"] >= replayed["chain"]["mat"]
    assert math.isfinite(replayed["chain"]["mat_novel"])
