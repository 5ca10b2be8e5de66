"""All checks that need no model: this process's, then those of one that SGLang would spawn."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from graft_sglang.doctor import environment as here
from graft_sglang.doctor.findings import Report
from graft_sglang.doctor.process import check_plugin, check_settings, look, write_stand_in
from graft_sglang.registry import budget_policies, edge_scorers, tree_builders


def check_installation(report: Report) -> None:
    """Add the findings; a process is spawned only if the plugin can be loaded at all."""
    report.step("versions and entry points")
    report.add(here.check_python(), here.check_sglang())
    report.extend(here.check_package(name) for name in here.PACKAGES)
    report.add(here.check_device(), here.check_variables(os.environ))
    report.extend(here.check_entry_point(*entry) for entry in here.ENTRY_POINTS)
    report.add(
        here.check_registry(edge_scorers),
        here.check_registry(budget_policies),
        here.check_registry(tree_builders),
    )
    if report.failed:
        return
    report.step("the plugin in a spawned process")
    with tempfile.TemporaryDirectory() as folder:
        view = look(write_stand_in(Path(folder)))
    report.extend(check_plugin(view))
    if view.registered:
        report.add(check_settings(view, own_pair=False))
