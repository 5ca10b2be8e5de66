"""Every fault that ``put_faults_back.py`` puts back still has its place in the code."""

from __future__ import annotations

import pytest
from put_faults_back import FAULTS, ROOT, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.number} {fault.words}")
def test_the_edit_applies_once(fault: Fault) -> None:
    text = (ROOT / fault.file).read_text()
    assert text.count(fault.old) == 1
    assert fault.new not in text
    name = fault.test.split("::")[0]
    assert (ROOT / "tests" / "engine" / name).is_file()
