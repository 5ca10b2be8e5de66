"""From a server's context to what a policy is built of: the file checked, the grid cut to fit."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from graft_sglang.budgeters.saba.document import SabaDocument, load
from graft_sglang.contracts import ComponentContext
from graft_sglang.fingerprint import fingerprint_embedding
from graft_sglang.hardware import describe

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted file as a server uses it."""

    document: SabaDocument
    grid: tuple[int, ...]
    """The file's budgets that the server's buffers hold."""
    elsewhere: bool
    """Whether its costs were measured on another machine."""


def fitted_for(context: ComponentContext, policy: str) -> Fitted:
    """What the option ``saba_path`` names, checked and cut to the server.

    Raises:
        ValueError: no file is named, it can't be used, it was fitted for other models, or none of
            its budgets fits the buffers.
    """
    document = document_for(context, policy)
    elsewhere = on_other_hardware(document, context.device)
    return Fitted(document, grid_within(document, context.max_budget), elsewhere)


def document_for(context: ComponentContext, policy: str) -> SabaDocument:
    """The fitted file that the option ``saba_path`` names, checked against the server.

    Raises:
        ValueError: no file is named, it can't be used, or it was fitted for other models.
    """
    path = context.options.get("saba_path")
    if not path:
        raise ValueError(
            f"The budget policy '{policy}' needs a fitted file: give --graft-saba-path, or make "
            f"one with `graft-sglang fit-saba`."
        )
    document = load(path)
    if document.depth != context.depth:
        raise ValueError(
            f"The SABA file '{path}' was fitted for a drafter of {document.depth} depths, but this "
            f"one has {context.depth}; fit it again with `graft-sglang fit-saba`."
        )
    if document.target_fingerprint and context.target_embedding is not None:
        served = fingerprint_embedding(context.target_embedding())
        if served != document.target_fingerprint:
            raise ValueError(
                f"The SABA file '{path}' was fitted for another target ('{document.target}'); fit "
                f"it again with `graft-sglang fit-saba`."
            )
    scorer = context.options.get("edge_scorer")
    if scorer and document.edge_scorer and scorer != document.edge_scorer:
        logger.warning(
            "GRAFT: the SABA file %s was fitted with the edge scorer '%s', this server uses '%s'.",
            path,
            document.edge_scorer,
            scorer,
        )
    return document


def on_other_hardware(document: SabaDocument, device: torch.device) -> bool:
    """Whether the file's costs were measured elsewhere; says so in the log."""
    here = describe(device)
    if document.hardware == here:
        return False
    logger.warning(
        "GRAFT: the SABA file's costs were measured on '%s', this is '%s'; the served rounds' own "
        "latencies correct them.",
        document.hardware,
        here,
    )
    return True


def grid_within(document: SabaDocument, max_budget: int) -> tuple[int, ...]:
    """The file's budgets that the server's buffers hold.

    Raises:
        ValueError: none of them but 0.
    """
    grid = tuple(b for b in document.grid if b <= max_budget)
    if not grid or grid[-1] == 0:
        smallest = min(b for b in document.grid if b)
        raise ValueError(
            f"The SABA file's smallest budget is {smallest}, but the buffers hold {max_budget} "
            f"nodes: raise --graft-max-budget."
        )
    return grid


def online_option(options: Mapping[str, Any], default: bool) -> bool:
    """The option ``saba_online``; ``None`` or absent means the policy's own default."""
    chosen = options.get("saba_online")
    return default if chosen is None else bool(chosen)
