"""Names, conformance and discovery of swappable parts."""

from __future__ import annotations

import sys

import pytest

from graft_sglang.contracts import BudgetPolicy, EdgeScorer, TreeBuilder
from graft_sglang.registry import Registry, RegistryError, budget_policies, edge_scorers
from graft_sglang.registry import tree_builders as our_builders

GROUP = "graft_sglang.tests.scorers"


@pytest.fixture
def scorers() -> Registry[EdgeScorer]:
    return Registry("edge scorer", EdgeScorer, GROUP)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a distribution with one module and its entry points on ``sys.path``."""

    def put(package: str, source: str, **names: str) -> None:
        place = tmp_path / package
        info = place / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (place / f"{package}.py").write_text(source)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in names.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
        monkeypatch.syspath_prepend(str(place))
        monkeypatch.delitem(sys.modules, package, raising=False)

    return put


class Plain(EdgeScorer):
    def score(self, candidates):
        return candidates


DUCK = """
class Duck:
    @classmethod
    def from_context(cls, context):
        return cls()

    def score(self, candidates, verbose=False):
        return candidates
"""


def test_our_parts_are_found_through_entry_points() -> None:
    assert "ddtree" in edge_scorers.names()
    assert "fixed" in budget_policies.names()
    assert {"best_first", "chain"} <= set(our_builders.names())
    assert issubclass(our_builders.get("chain"), TreeBuilder)
    assert issubclass(budget_policies.get("fixed"), BudgetPolicy)


def test_a_decorated_class_is_found_by_its_name(scorers) -> None:
    assert scorers.register("plain")(Plain) is Plain
    assert scorers.get("plain") is Plain
    assert scorers.names() == ["plain"]


def test_an_unknown_name_lists_the_known_ones(scorers) -> None:
    scorers.add("zebra", Plain)
    scorers.add("ant", Plain)
    with pytest.raises(RegistryError, match=r"Unknown edge scorer 'x'; known names: ant, zebra\."):
        scorers.get("x")


def test_a_taken_name_is_refused(scorers) -> None:
    class Other(Plain):
        pass

    scorers.add("plain", Plain)
    with pytest.raises(RegistryError, match=r"'plain' .*Other but already taken by .*\.Plain"):
        scorers.add("plain", Other)
    assert scorers.get("plain") is Plain


def test_the_same_class_twice_is_accepted(scorers) -> None:
    scorers.add("plain", Plain)
    scorers.add("plain", Plain)
    assert scorers.names() == ["plain"]


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_name_must_be_a_non_empty_string(scorers, name) -> None:
    with pytest.raises(RegistryError, match="needs a non-empty name"):
        scorers.add(name, Plain)


def test_only_classes_can_be_registered(scorers) -> None:
    with pytest.raises(RegistryError, match="'plain' must be a class"):
        scorers.add("plain", Plain())


def test_a_missing_method_is_named(scorers) -> None:
    class Without:
        @classmethod
        def from_context(cls, context):
            return cls()

    with pytest.raises(RegistryError, match=r"missing score of the EdgeScorer contract"):
        scorers.add("without", Without)


def test_a_method_left_abstract_is_named() -> None:
    policies = Registry("budget policy", BudgetPolicy, GROUP)

    class Half(BudgetPolicy):
        def select(self, state):
            return state

    with pytest.raises(RegistryError, match="missing from_context, max_budget of the BudgetPolicy"):
        policies.add("half", Half)


def test_a_foreign_class_needs_the_methods_with_a_default_too() -> None:
    policies = Registry("budget policy", BudgetPolicy, GROUP)

    class Foreign:
        max_budget = 8

        @classmethod
        def from_context(cls, context):
            return cls()

        def select(self, state):
            return state

    with pytest.raises(RegistryError, match="missing observe of the BudgetPolicy contract"):
        policies.add("foreign", Foreign)


def test_a_wrong_signature_is_named(scorers) -> None:
    class Narrow(EdgeScorer):
        def score(self):
            return None

    class Greedy(EdgeScorer):
        def score(self, candidates, temperature):
            return None

    class Value(EdgeScorer):
        score = 3

    for cls in (Narrow, Greedy):
        with pytest.raises(
            RegistryError, match=r"score of the edge scorer 's' must take \(self, c"
        ):
            scorers.add("s", cls)
    with pytest.raises(RegistryError, match=r"Value\.score of 's' must be a method"):
        scorers.add("s", Value)


def test_a_method_in_place_of_a_property_is_named() -> None:
    policies = Registry("budget policy", BudgetPolicy, GROUP)

    class Method(BudgetPolicy):
        from_context = classmethod(lambda cls, context: cls())

        def max_budget(self):
            return 8

        def select(self, state):
            return state

    with pytest.raises(RegistryError, match=r"max_budget of 'm' must be a property"):
        policies.add("m", Method)


def test_a_third_partys_foreign_class_is_discovered(scorers, install) -> None:
    install("ducklib", DUCK, duck="ducklib:Duck")
    assert scorers.names() == ["duck"]
    assert scorers.get("duck").__name__ == "Duck"
    assert scorers.get("duck") is scorers.get("duck")


def test_listing_names_imports_nothing(scorers, install) -> None:
    install("ducklib", DUCK, duck="ducklib:Duck")
    install("brokenlib", "raise OSError('no such device')", broken="brokenlib:Thing")
    assert scorers.names() == ["broken", "duck"]
    assert not {"ducklib", "brokenlib"} & set(sys.modules)


def test_a_broken_package_costs_only_its_own_name(scorers, install) -> None:
    install("brokenlib", "raise OSError('no such device')", broken="brokenlib:Thing")
    install("ducklib", DUCK, duck="ducklib:Duck", gone="ducklib:Gone", bare="ducklib:DUCKS")
    assert scorers.get("duck").__name__ == "Duck"
    with pytest.raises(
        RegistryError,
        match=r"'broken' of package brokenlib can't be imported \(brokenlib:Thing\): "
        r"OSError: no such device\.",
    ):
        scorers.get("broken")
    with pytest.raises(RegistryError, match=r"'gone' of package ducklib.*AttributeError"):
        scorers.get("gone")


def test_a_discovered_class_is_checked_too(scorers, install) -> None:
    install("emptylib", "class Empty:\n    pass\n", empty="emptylib:Empty")
    with pytest.raises(RegistryError, match=r"'empty' .* is missing from_context, score"):
        scorers.get("empty")


def test_two_packages_wanting_one_name_are_refused_when_it_is_asked_for(scorers, install) -> None:
    install("ducklib", DUCK, duck="ducklib:Duck")
    install("rivallib", DUCK, duck="rivallib:Duck")
    assert scorers.names() == ["duck"]
    with pytest.raises(RegistryError, match=r"lib\.Duck but already taken by .*lib\.Duck"):
        scorers.get("duck")


def test_a_decorated_class_may_be_an_entry_point_too(scorers, install) -> None:
    install("ducklib", DUCK, duck="ducklib:Duck")
    import ducklib

    scorers.add("duck", ducklib.Duck)
    assert scorers.get("duck") is ducklib.Duck


def test_a_decorated_class_may_not_hide_an_installed_one(scorers, install) -> None:
    install("ducklib", DUCK, duck="ducklib:Duck")
    scorers.add("duck", Plain)
    with pytest.raises(RegistryError, match=r"ducklib\.Duck but already taken by .*\.Plain"):
        scorers.get("duck")
