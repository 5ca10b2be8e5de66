"""Training text of the tiny target: a chat corpus and Python's own standard library."""

from __future__ import annotations

import ast
import random
import sysconfig
from pathlib import Path

from examples.dflash_training.data import Example

SKIPPED_PARTS = {
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "site-packages",
    "dist-packages",
    "turtledemo",
}
MAX_FUNCTION_CHARS = 1_500
PROMPT_FORMS = (
    "Write the Python function `{name}`. {summary}",
    "Implement `{name}` in Python. {summary}",
    "{summary} Write this as a Python function named `{name}`.",
)


def stdlib_sources() -> list[Path]:
    """Source files of the running Python's standard library, tests left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(root.rglob("*.py"))
    return [p for p in paths if not SKIPPED_PARTS & set(p.relative_to(root).parts)]


def _summary(node: ast.FunctionDef) -> str:
    doc = ast.get_docstring(node) or ""
    return " ".join(doc.split("\n\n")[0].split())


def function_examples(paths: list[Path], seed: int) -> list[Example]:
    """Documented functions as chat: name and summary in the prompt, source in the response."""
    rng = random.Random(seed)
    examples = []
    for path in paths:
        try:
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source)
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef) or not (summary := _summary(node)):
                continue
            code = "\n".join(
                line[node.col_offset :]
                for line in source.splitlines()[node.lineno - 1 : node.end_lineno]
            )
            if len(code) <= MAX_FUNCTION_CHARS and len(summary) <= 300:
                prompt = rng.choice(PROMPT_FORMS).format(name=node.name, summary=summary)
                examples.append(Example("stdlib", prompt, f"```python\n{code}\n```"))
    return examples


def raw_documents(paths: list[Path], limit_chars: int, seed: int) -> list[str]:
    """Whole source files in seeded random order until ``limit_chars`` are gathered."""
    rng = random.Random(seed)
    documents, total = [], 0
    for path in rng.sample(paths, len(paths)):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if total + len(text) > limit_chars:
            break
        documents.append(text)
        total += len(text)
    return documents
