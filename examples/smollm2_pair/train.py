"""Train the SmolLM2 drafter on the cached answers (``--help`` for options)."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import torch

from examples.dflash_training.drafter import save_drafter
from examples.dflash_training.fit import FitPlan, fit_drafter
from examples.dflash_training.teacher import TeacherCache
from examples.dflash_training.train import LoopConfig
from examples.dflash_training.warm_start import warm_start
from graft_sglang.reference.drafter import DFlashDrafter

from .pair import SEED, TOP, drafter_config, load_target, read_answers
from .prepare import HERE

PLAN = FitPlan(batch=6, anchors=80, decay=3.0, soft_share=0.5, shortlist=4_096, muon_steps=4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=HERE / "target")
    parser.add_argument("--answers", type=Path, required=True, help="responses.jsonl")
    parser.add_argument("--runs", type=Path, required=True, help="folder for cache and checkpoints")
    parser.add_argument("--out", type=Path, default=HERE / "drafter")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--name", default="drafter", help="of the checkpoint in --runs")
    parser.add_argument("--cold", action="store_true", help="random start (for comparison)")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    random.seed(SEED)
    torch.manual_seed(SEED)
    target = load_target(args.target)
    cfg = drafter_config(target)
    drafter = DFlashDrafter(cfg)
    answers = read_answers(args.answers)
    if not args.cold:
        warm_start(drafter, target, torch.tensor([answers[0].tokens]))
    width = len(cfg.target_layer_ids) * cfg.hidden_size
    cache = TeacherCache(args.runs / "teacher", answers, width, TOP)
    embedding = target.get_input_embeddings().weight.detach().clone()
    del target
    loop = LoopConfig(args.steps, args.lr, warmup=20, seed=SEED, checkpoint_every=20, stable=0.6)
    log = fit_drafter(
        drafter, embedding, embedding, cache, PLAN, loop, args.runs / f"{args.name}.pt"
    )
    save_drafter(drafter, args.out)
    (args.runs / f"{args.name}.log.json").write_text(json.dumps(log))


if __name__ == "__main__":
    main()
