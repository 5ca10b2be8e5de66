"""Gives these tests the synthetic rounds of ``tests/traces``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "traces"))
