"""SGLang's entry points: what is registered, in every process, before arguments are parsed."""

from __future__ import annotations

import sys
from importlib.metadata import version

SUPPORTED_SGLANG = (0, 5, 23)

CPU_PLATFORM = "graft_sglang.engine.cpu_platform:GraftCpuPlatform"


class UnsupportedSGLang(RuntimeError):
    """This SGLang is not one that GRAFT was tested with."""


def register() -> None:
    """Entry point of ``sglang.srt.plugins``: adds the GRAFT algorithm, its flags and its hooks.

    SGLang only logs what a plugin raises and then reports an unknown algorithm, so on another
    SGLang, where our registration may not even work, a GRAFT server is ended here.
    """
    try:
        check_sglang_version()
    except UnsupportedSGLang as error:
        if any("GRAFT" in argument.upper().split("=")[-1] for argument in sys.argv[1:]):
            raise SystemExit(f"graft_sglang: {error}") from error
        raise

    from graft_sglang.engine import algorithm, flags, gpu_verify, host_engine, requests
    from graft_sglang.engine.cpu_platform import is_active as on_our_cpu_platform

    flags.install()
    algorithm.install()
    gpu_verify.install()
    host_engine.install()
    requests.install()
    if on_our_cpu_platform():
        from graft_sglang.engine import cpu_attention, cpu_kernels, cpu_linear, cpu_threads

        cpu_attention.install()
        cpu_kernels.install()
        cpu_linear.install()
        cpu_threads.install()
        cpu_threads.prepare_environment()


def check_sglang_version() -> None:
    """Raise ``UnsupportedSGLang`` unless the installed SGLang is in the tested range."""
    installed = version("sglang")
    if tuple(installed.split(".")[:3]) != tuple(str(part) for part in SUPPORTED_SGLANG):
        wanted = ".".join(str(part) for part in SUPPORTED_SGLANG)
        raise UnsupportedSGLang(
            f"this graft_sglang was tested with SGLang {wanted} only, but {installed} is "
            f"installed; run: pip install 'sglang=={wanted}'."
        )


def activate_platform() -> str | None:
    """Entry point of ``sglang.srt.platforms``: our CPU platform where no accelerator is.

    SGLang's own CPU engine (``SGLANG_USE_CPU_ENGINE=1``) and every other platform go first.
    """
    import os

    import torch

    if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
        return None
    if torch.cuda.is_available() or torch.xpu.is_available() or torch.backends.mps.is_available():
        return None
    if hasattr(torch, "npu") and torch.npu.is_available():
        return None
    if getattr(torch.version, "musa", None) is not None:
        return None
    if _another_platform_plugin_is_installed():
        return None
    return CPU_PLATFORM


def _another_platform_plugin_is_installed() -> bool:
    """Two active platforms are an error in SGLang unless ``SGLANG_PLATFORM`` names one."""
    import os
    from importlib.metadata import entry_points

    if os.environ.get("SGLANG_PLATFORM") == "graft_cpu":
        return False
    return any(
        entry.value != "graft_sglang.engine.plugin:activate_platform"
        for entry in entry_points(group="sglang.srt.platforms")
    )
