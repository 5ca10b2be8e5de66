"""Names for swappable parts: one small typed registry, used three times."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from graft_sglang.contracts import BudgetPolicy, EdgeScorer, TreeBuilder

T = TypeVar("T")


class RegistryError(ValueError):
    """A part can't be registered, or a name is not registered; says what would be right."""


class Registry(Generic[T]):
    """Maps names to classes that keep one contract.

    Classes come from the decorator ``register`` or, on first use, from installed packages'
    entry points in ``group``: ours are found there like anybody's. A class need not derive
    from the contract; it must have the contract's abstract methods, taking the same arguments.
    """

    def __init__(self, kind: str, contract: type[T], group: str) -> None:
        self.kind = kind
        self.contract = contract
        self.group = group
        self._classes: dict[str, type[T]] = {}
        self._discovered = False

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Class decorator. Raises ``RegistryError`` on a taken name or a broken contract."""

        def decorate(cls: type[T]) -> type[T]:
            self.add(name, cls)
            return cls

        return decorate

    def add(self, name: str, cls: type[T]) -> None:
        """Register ``cls`` as ``name``; the same class twice is accepted (double plugin load)."""
        self._check(name, cls)
        known = self._classes.get(name)
        if known is None:
            self._classes[name] = cls
        elif (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise RegistryError(
                f"The {self.kind} name '{name}' is already taken by "
                f"{known.__module__}.{known.__qualname__}; known names: {self._listed()}."
            )

    def get(self, name: str) -> type[T]:
        """Return the class called ``name``; raises ``RegistryError`` listing the known names."""
        self._discover()
        if name not in self._classes:
            raise RegistryError(f"Unknown {self.kind} '{name}'; known names: {self._listed()}.")
        return self._classes[name]

    def names(self) -> list[str]:
        """All names, sorted."""
        self._discover()
        return sorted(self._classes)

    def _listed(self) -> str:
        return ", ".join(self.names())

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True
        for entry in entry_points(group=self.group):
            try:
                cls = entry.load()
            except Exception as error:
                raise RegistryError(
                    f"The {self.kind} '{entry.name}' of package "
                    f"{entry.dist.name if entry.dist else '?'} can't be imported: {error}."
                ) from error
            self.add(entry.name, cls)

    def _check(self, name: str, cls: Any) -> None:
        if not name or not isinstance(name, str):
            raise RegistryError(f"A {self.kind} needs a non-empty name, not {name!r}.")
        if not inspect.isclass(cls):
            raise RegistryError(f"The {self.kind} '{name}' must be a class, not {cls!r}.")
        required = {"from_context"} | set(getattr(self.contract, "__abstractmethods__", ()))
        missing = sorted(m for m in required if not hasattr(cls, m))
        missing += sorted(set(getattr(cls, "__abstractmethods__", ())) - set(missing))
        if missing:
            raise RegistryError(
                f"The {self.kind} '{name}' ({cls.__qualname__}) is missing {', '.join(missing)} "
                f"of the {self.contract.__name__} contract."
            )
        for method in sorted(required):
            self._check_signature(name, cls, method)

    def _check_signature(self, name: str, cls: Any, method: str) -> None:
        wanted = getattr(self.contract, method)
        if isinstance(wanted, property):
            return
        given = getattr(cls, method)
        if not callable(given):
            raise RegistryError(f"{cls.__qualname__}.{method} of '{name}' must be a method.")
        arguments = list(inspect.signature(wanted).parameters)
        try:
            inspect.signature(given).bind(*arguments)
        except TypeError as error:
            raise RegistryError(
                f"{cls.__qualname__}.{method} of the {self.kind} '{name}' must take "
                f"({', '.join(arguments)}): {error}."
            ) from error


edge_scorers: Registry[EdgeScorer] = Registry(
    "edge scorer", EdgeScorer, "graft_sglang.edge_scorers"
)
budget_policies: Registry[BudgetPolicy] = Registry(
    "budget policy", BudgetPolicy, "graft_sglang.budget_policies"
)
tree_builders: Registry[TreeBuilder] = Registry(
    "tree builder", TreeBuilder, "graft_sglang.tree_builders"
)
