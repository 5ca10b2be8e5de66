"""The swappable parts of a server, built from its configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from graft_sglang.config import GraftConfig
from graft_sglang.contracts import BudgetPolicy, ComponentContext, EdgeScorer, TreeBuilder
from graft_sglang.registry import budget_policies, edge_scorers, tree_builders


@dataclass(frozen=True, slots=True)
class Components:
    """What a decoding round is made of."""

    scorer: EdgeScorer
    policy: BudgetPolicy
    builder: TreeBuilder

    @property
    def device(self) -> torch.device:
        """Where the builder wants candidates and scores."""
        return self.builder.device


def build_components(config: GraftConfig, context: ComponentContext) -> Components:
    """Look the names up and build the parts.

    Raises:
        ValueError: an unknown name, a part that can't be built, or a policy that asks for more
            nodes than the buffers hold; one sentence.
    """
    builder = tree_builders.get(config.tree_builder).from_context(context)
    context = replace(context, round_device=builder.device)
    components = Components(
        scorer=edge_scorers.get(config.edge_scorer).from_context(context),
        policy=budget_policies.get(config.budget_policy).from_context(context),
        builder=builder,
    )
    if components.policy.max_budget > context.max_budget:
        raise ValueError(
            f"The budget policy '{config.budget_policy}' asks for up to "
            f"{components.policy.max_budget} nodes, but the buffers hold {context.max_budget}: "
            f"raise --graft-max-budget or lower the policy's budget."
        )
    return components
