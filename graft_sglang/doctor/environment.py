"""Versions, the device, the two entry points, the registries: what needs no other process."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires, version

import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from graft_sglang.doctor.findings import Finding, fail, ok, warn
from graft_sglang.engine.plugin import SUPPORTED_SGLANG, UnsupportedSGLang, check_sglang_version
from graft_sglang.hardware import describe
from graft_sglang.registry import Registry, RegistryError

MINIMUM_PYTHON = (3, 11)
PACKAGES = ("torch", "transformers", "numba", "flashinfer-python")
ENTRY_POINTS = (
    ("sglang.srt.plugins", "graft_sglang.engine.plugin:register"),
    ("sglang.srt.platforms", "graft_sglang.engine.plugin:activate_platform"),
)


def check_python(installed: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """The interpreter's version."""
    seen = ".".join(map(str, installed))
    if installed[:2] < MINIMUM_PYTHON:
        wanted = ".".join(map(str, MINIMUM_PYTHON))
        return fail("python", seen, f"Install into a Python {wanted} or newer.")
    return ok("python", f"{seen} ({sys.executable})")


def check_sglang() -> Finding:
    """SGLang's version against the supported range."""
    wanted = ".".join(map(str, SUPPORTED_SGLANG))
    install = f"Run: {sys.executable} -m pip install 'sglang=={wanted}'."
    try:
        check_sglang_version()
    except PackageNotFoundError:
        return fail("sglang", "not installed", install)
    except UnsupportedSGLang:
        return fail("sglang", f"{version('sglang')}, supported is {wanted} only", install)
    return ok("sglang", f"{version('sglang')}, supported")


def check_package(name: str) -> Finding:
    """A package's version against what the installed SGLang asks for."""
    wanted = wanted_by_sglang(name)
    install = f"Run: {sys.executable} -m pip install '{name}{wanted}'."
    try:
        installed = version(name)
    except PackageNotFoundError:
        if name == "flashinfer-python" and not torch.cuda.is_available():
            return ok(name, "not installed; not needed without a CUDA device")
        return fail(name, "not installed", install)
    if not wanted.contains(installed, prereleases=True):
        return warn(name, f"{installed}, but this SGLang was made for {wanted}", install)
    return ok(name, installed)


def wanted_by_sglang(name: str) -> SpecifierSet:
    """What SGLang's metadata says about a package; anything where it says nothing."""
    try:
        texts = requires("sglang") or []
    except PackageNotFoundError:
        return SpecifierSet()
    for requirement in map(Requirement, texts):
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and canonicalize_name(requirement.name) == name:
            return requirement.specifier
    return SpecifierSet()


def check_device() -> Finding:
    """The CUDA device, or that there is none."""
    if torch.cuda.is_available():
        found = torch.cuda.get_device_properties(0)
        return ok(
            "device",
            f"{torch.cuda.device_count()} x {found.name}, compute capability "
            f"{found.major}.{found.minor}, {found.total_memory / 2**30:.0f} GiB, "
            f"CUDA {torch.version.cuda}",
        )
    here = describe(torch.device("cpu"))
    if shutil.which("nvidia-smi") or os.path.exists("/dev/nvidiactl"):
        return warn(
            "device",
            f"an NVIDIA driver is here, but torch {torch.__version__} finds no CUDA device; {here}",
            "See whether nvidia-smi works, its driver is new enough for CUDA "
            f"{torch.version.cuda} and CUDA_VISIBLE_DEVICES is not empty.",
        )
    return ok("device", f"no CUDA device: served on the CPU, {here}")


def check_variables(environment: Mapping[str, str]) -> Finding:
    """SGLang's variables that choose plugins and platform.

    Where ``SGLANG_PLATFORM`` names a platform, SGLang leaves out the general plugins of every
    package that brings another one: ours too.
    """
    plugins = environment.get("SGLANG_PLUGINS", "")
    if plugins and "graft" not in {name.strip() for name in plugins.split(",")}:
        return fail(
            "variables",
            f"SGLANG_PLUGINS={plugins} keeps SGLang from loading GRAFT",
            "Add graft to SGLANG_PLUGINS, or unset it.",
        )
    platform = environment.get("SGLANG_PLATFORM", "")
    if platform not in ("", "graft_cpu"):
        return fail(
            "variables",
            f"SGLANG_PLATFORM={platform} keeps SGLang from loading GRAFT",
            "Unset SGLANG_PLATFORM.",
        )
    return ok("variables", "SGLANG_PLUGINS and SGLANG_PLATFORM let GRAFT be loaded")


def check_entry_point(group: str, value: str) -> Finding:
    """One of the two doors through which SGLang finds GRAFT: there, and loadable."""
    check = f"entry point {group}"
    reinstall = f"Reinstall graft-sglang into this environment ({sys.executable} -m pip install)."
    found: list[EntryPoint] = [e for e in entry_points(group=group) if e.value == value]
    if not found:
        return fail(check, f"no installed package declares {value}", reinstall)
    try:
        found[0].load()
    except Exception as error:
        return fail(check, f"{value} can't be loaded: {type(error).__name__}: {error}", reinstall)
    return ok(check, f"{found[0].name} = {value}")


def check_registry(registry: Registry) -> Finding:
    """A registry's names, each looked up; a broken package costs its own names only."""
    check = f"{registry.kind} names"
    broken = []
    for name in registry.names():
        try:
            registry.get(name)
        except RegistryError as error:
            broken.append(str(error))
    seen = ", ".join(registry.names())
    if broken:
        return warn(check, f"{seen}; {' '.join(broken)}", "Update or remove that package.")
    if not seen:
        return fail(check, "none", "Reinstall graft-sglang: its entry points are missing.")
    return ok(check, seen)
