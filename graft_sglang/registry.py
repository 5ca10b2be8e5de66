"""Names for swappable parts: one small typed registry, used three times."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from graft_sglang.contracts import BudgetPolicy, EdgeScorer, TreeBuilder

T = TypeVar("T")


class RegistryError(ValueError):
    """A part can't be registered, or a name is not registered; says what would be right."""


class Registry(Generic[T]):
    """Maps names to classes that keep one contract.

    Classes come from the decorator ``register`` or from installed packages' entry points in
    ``group``: ours are found there like anybody's. An entry point is imported when its name is
    asked for, so a broken package costs its own names only. A class need not derive from the
    contract; it must have the contract's methods, taking the same arguments.
    """

    def __init__(self, kind: str, contract: type[T], group: str) -> None:
        self.kind = kind
        self.contract = contract
        self.group = group
        self._classes: dict[str, type[T]] = {}
        self._loaded: set[str] = set()

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Class decorator. Raises ``RegistryError`` on a taken name or a broken contract."""

        def decorate(cls: type[T]) -> type[T]:
            self.add(name, cls)
            return cls

        return decorate

    def add(self, name: str, cls: type[T]) -> None:
        """Register ``cls`` as ``name``; the same class twice is accepted (double plugin load).

        A name that an entry point holds too is refused when it is asked for, not here: the
        entry point's module may be what is being imported.
        """
        self._check(name, cls)
        known = self._classes.setdefault(name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise RegistryError(
                f"The {self.kind} name '{name}' is wanted by "
                f"{cls.__module__}.{cls.__qualname__} but already taken by "
                f"{known.__module__}.{known.__qualname__}; known names: {self._listed()}."
            )

    def get(self, name: str) -> type[T]:
        """Return the class called ``name``.

        Raises:
            RegistryError: an unknown name, one that two classes claim, or one whose package
                can't be imported or breaks the contract.
        """
        if name not in self._loaded:
            for entry in self._entries.get(name, []):
                self.add(name, self._load(entry))
            self._loaded.add(name)
        if name not in self._classes:
            raise RegistryError(f"Unknown {self.kind} '{name}'; known names: {self._listed()}.")
        return self._classes[name]

    def names(self) -> list[str]:
        """All names, sorted; nothing is imported for it."""
        return sorted({*self._classes, *self._entries})

    def _listed(self) -> str:
        return ", ".join(self.names())

    @cached_property
    def _entries(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group=self.group):
            found.setdefault(entry.name, []).append(entry)
        return found

    def _load(self, entry: EntryPoint) -> Any:
        try:
            return entry.load()
        except Exception as error:
            package = entry.dist.name if entry.dist else "?"
            raise RegistryError(
                f"The {self.kind} '{entry.name}' of package {package} can't be imported "
                f"({entry.value}): {type(error).__name__}: {error}."
            ) from error

    def _check(self, name: str, cls: Any) -> None:
        if not name or not isinstance(name, str):
            raise RegistryError(f"A {self.kind} needs a non-empty name, not {name!r}.")
        if not inspect.isclass(cls):
            raise RegistryError(f"The {self.kind} '{name}' must be a class, not {cls!r}.")
        required = {m for m in vars(self.contract) if not m.startswith("_")}
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
        given = getattr(cls, method)
        if not isinstance(wanted, property) and not callable(wanted):
            return
        if isinstance(wanted, property):
            if callable(given):
                raise RegistryError(
                    f"{cls.__qualname__}.{method} of '{name}' must be a property, not a method."
                )
            return
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
