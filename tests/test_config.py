"""Where settings come from and what is refused."""

from __future__ import annotations

import json

import pytest

from graft_sglang.config import ConfigError, GraftConfig, resolve
from graft_sglang.contracts import MAX_BUDGET


def test_without_any_source_the_defaults_hold() -> None:
    assert resolve({}) == GraftConfig()


def test_flags_win_over_the_document_and_that_over_the_environment() -> None:
    config = resolve(
        {"budget": 1, "candidates": None},
        json.dumps({"budget": 2, "candidates": 20}),
        json.dumps({"budget": 3, "candidates": 30, "tree_builder": "chain"}),
    )
    assert (config.budget, config.candidates, config.tree_builder) == (1, 20, "chain")


@pytest.mark.parametrize("source", ["document", "environment"])
def test_a_source_may_be_json_or_a_file(source, tmp_path) -> None:
    text = json.dumps({"budget": 7, "imports": ["a", "b"]})
    path = tmp_path / "graft.json"
    path.write_text(text)
    inline, from_file = (resolve({}, **{source: value}) for value in (f"\n {text}", str(path)))
    assert inline == from_file == GraftConfig(budget=7, imports=("a", "b"))


@pytest.mark.parametrize("empty", [None, ""])
def test_an_empty_source_is_none(empty) -> None:
    assert resolve({}, empty, empty) == GraftConfig()


@pytest.mark.parametrize(
    ("source", "origin"), [("document", "--graft-config"), ("environment", "GRAFT_CONFIG")]
)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"budgets": 3, "alpha": 1}', "unknown settings alpha, budgets; known: .*budget"),
        ('{"budget": 3', "is not valid JSON"),
        ("no/such/file.json", "names 'no/such/file.json', which is neither JSON nor a file"),
    ],
)
def test_a_bad_source_is_named(source, origin, text, message) -> None:
    with pytest.raises(ConfigError, match=f"{origin}.*{message}"):
        resolve({}, **{source: text})


def test_a_file_without_an_object_is_refused(tmp_path) -> None:
    path = tmp_path / "graft.json"
    path.write_text("[1, 2]")
    with pytest.raises(ConfigError, match="must hold a JSON object, not a list"):
        resolve({}, str(path))


@pytest.mark.parametrize("name", ["budget", "max_budget", "candidates"])
@pytest.mark.parametrize("value", [0, -1, MAX_BUDGET + 1, 1.5, "8", True])
def test_whole_numbers_in_range_are_demanded(name, value) -> None:
    with pytest.raises(ConfigError, match=f"GRAFT's {name} must be a whole number from 1 to 1024"):
        resolve({name: value})


def test_the_bounds_themselves_are_accepted() -> None:
    assert (
        resolve({"budget": 1, "max_budget": MAX_BUDGET, "candidates": 1}).max_budget == MAX_BUDGET
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("edge_scorer", 3),
        ("edge_scorer", ["ddtree"]),
        ("budget_policy", 3),
        ("tree_builder", ["chain"]),
        ("tree_builder", ""),
    ],
)
def test_registry_names_are_strings(name, value) -> None:
    with pytest.raises(ConfigError, match=f"GRAFT's {name} must be a registry name"):
        resolve({}, json.dumps({name: value}))


def test_one_import_may_be_given_bare() -> None:
    assert resolve({"imports": "my.scorers"}).imports == ("my.scorers",)


def test_imports_of_another_type_are_refused() -> None:
    with pytest.raises(ConfigError, match="wrong type"):
        resolve({}, '{"imports": 5}')


def test_options_hold_every_field() -> None:
    config = GraftConfig(budget=9)
    assert GraftConfig(**config.as_options()) == config


def test_a_checkpoint_chooses_its_scorer_and_a_fit_its_policy() -> None:
    assert (GraftConfig().edge_scorer, GraftConfig().budget_policy) == ("ddtree", "fixed")
    assert GraftConfig(tdes_path="t").edge_scorer == "tdes"
    assert GraftConfig(tdes_path="t", edge_scorer="tdes_normalized").edge_scorer == (
        "tdes_normalized"
    )
    assert GraftConfig(saba_path="s").budget_policy == "saba"
    assert GraftConfig(saba_path="s", budget_policy="fixed").budget_policy == "fixed"


@pytest.mark.parametrize("beta", [-0.1, float("nan"), float("inf"), "0.2", True])
def test_a_bad_beta_is_refused(beta) -> None:
    with pytest.raises(ConfigError, match="beta must be a number from 0 up"):
        GraftConfig(beta=beta)


@pytest.mark.parametrize("name", ["tdes_path", "saba_path", "trace_dir"])
def test_a_path_is_a_non_empty_string(name) -> None:
    for value in ("", 3):
        with pytest.raises(ConfigError, match=f"{name} must be a path"):
            GraftConfig(**{name: value})
