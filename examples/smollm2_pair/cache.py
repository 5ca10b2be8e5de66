"""Cache the target's hidden states and top tokens over its answers (``--help`` for options)."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from examples.dflash_training.teacher import TeacherCache

from .pair import TOP, drafter_config, load_target, read_answers
from .prepare import HERE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=HERE / "target")
    parser.add_argument("--answers", type=Path, required=True, help="responses.jsonl")
    parser.add_argument("--runs", type=Path, required=True, help="folder for cache and checkpoints")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    target = load_target(args.target)
    layer_ids = drafter_config(target).target_layer_ids
    width = len(layer_ids) * target.config.hidden_size
    cache = TeacherCache(args.runs / "teacher", read_answers(args.answers), width, TOP)
    cache.fill(target, layer_ids)


if __name__ == "__main__":
    main()
