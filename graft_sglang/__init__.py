"""GRAFT: tree speculative decoding for block-diffusion (DFlash) drafters on SGLang."""

from pathlib import Path

__version__ = "0.1.0"

# In a source checkout `scorers/` and `budgeters/` stand beside this folder, not in it, and Python
# finds this folder before the installed package when it is started there.
_here = Path(__file__).resolve().parent
if not (_here / "scorers").is_dir() and (_here.parent / "scorers").is_dir():
    __path__.append(str(_here.parent))
