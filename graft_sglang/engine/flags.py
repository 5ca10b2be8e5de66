"""The command line: ``--graft-*`` flags added to SGLang's own parser."""

from __future__ import annotations

import argparse
import importlib
import os
from typing import Any

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from graft_sglang.config import ENVIRONMENT_VARIABLE, ConfigError, GraftConfig, resolve
from graft_sglang.registry import budget_policies, edge_scorers, tree_builders

_ATTRIBUTE = "_graft_flags"
"""Set on ``ServerArgs``: plain attributes with a leading underscore travel to every process."""


_DEFAULTS = GraftConfig()


def install() -> None:
    """Hook ``ServerArgs`` so that it parses our flags and carries them along."""
    base = "sglang.srt.server_args.ServerArgs."
    HookRegistry.register(base + "add_cli_args", _add_flags, HookType.AFTER)
    HookRegistry.register(base + "from_cli_args", _keep_flags, HookType.AFTER)


def config_of(server_args: Any) -> GraftConfig:
    """The configuration of this server, the same in every process.

    Raises:
        ConfigError: a source can't be read, a value or an imported module is wrong.
    """
    flags = dict(getattr(server_args, _ATTRIBUTE, None) or {})
    document = flags.pop("config", None)
    config = resolve(flags, document, os.environ.get(ENVIRONMENT_VARIABLE))
    for module in config.imports:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(f"--graft-import {module} can't be imported: {error}.") from error
    return config


def _add_flags(result: Any, parser: argparse.ArgumentParser) -> None:
    del result
    group = parser.add_argument_group(
        "GRAFT", "Tree speculative decoding with a DFlash drafter (--speculative-algorithm GRAFT)."
    )
    group.add_argument(
        "--graft-edge-scorer",
        metavar="NAME",
        help=f"Scores parent-child edges: {', '.join(edge_scorers.names())} or a third party's.",
    )
    group.add_argument(
        "--graft-tdes-path",
        metavar="DIR",
        help="TDES checkpoint (graft-sglang train-tdes); the edge scorer is then 'tdes'.",
    )
    group.add_argument(
        "--graft-beta",
        type=float,
        metavar="X",
        help=f"Scale of the TDES residual (default {_DEFAULTS.beta}).",
    )
    group.add_argument(
        "--graft-budget-policy",
        metavar="NAME",
        help=f"Chooses the nodes a round: {', '.join(budget_policies.names())} or a third party's.",
    )
    group.add_argument(
        "--graft-saba-path",
        metavar="FILE",
        help="Fitted gain and cost (graft-sglang fit-saba); the budget policy is then 'saba'.",
    )
    group.add_argument(
        "--graft-saba-online",
        action=argparse.BooleanOptionalAction,
        help="Let served rounds correct the fitted file (default: where the policy gains by it).",
    )
    group.add_argument(
        "--graft-tree-builder",
        metavar="NAME",
        help=f"Grows the tree: {', '.join(tree_builders.names())} or a third party's.",
    )
    group.add_argument(
        "--graft-budget",
        type=int,
        metavar="N",
        help=f"Nodes of a tree for 'fixed', the root not counted (default {_DEFAULTS.budget}).",
    )
    group.add_argument(
        "--graft-max-budget",
        type=int,
        metavar="N",
        help="Largest tree ever built; sizes every buffer (default: what the policy can ask for).",
    )
    group.add_argument(
        "--graft-candidates",
        type=int,
        metavar="K",
        help=f"Candidates a depth (default {_DEFAULTS.candidates}).",
    )
    group.add_argument(
        "--graft-trace-dir",
        metavar="DIR",
        help="Record rounds there for training and fitting; no prompt text is kept.",
    )
    group.add_argument(
        "--graft-import",
        action="append",
        dest="graft_imports",
        metavar="MODULE",
        help="Import MODULE first, for parts that it registers; may be repeated.",
    )
    group.add_argument(
        "--graft-config",
        metavar="FILE or JSON",
        help="All of the above as one JSON document; flags win.",
    )


def _keep_flags(server_args: Any, *arguments: Any) -> Any:
    namespace = arguments[-1]
    values = {
        name.removeprefix("graft_"): value
        for name, value in vars(namespace).items()
        if name.startswith("graft_") and value is not None
    }
    setattr(server_args, _ATTRIBUTE, values)
    return server_args
