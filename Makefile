# Everything runs in .venv, made by the first target that needs it. PYTHON chooses the interpreter.
PYTHON ?= python3.11
BIN := .venv/bin
PAIR := examples/tiny_pair

.PHONY: demo test lint format clean

$(BIN)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[demo,test,dev]'
	touch $@

demo: $(BIN)/.installed
	$(BIN)/graft-sglang demo --target $(PAIR)/target --drafter $(PAIR)/drafter

test: $(BIN)/.installed
	$(BIN)/python -m pytest

lint: $(BIN)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build/typed && $(BIN)/python -m pip install --quiet --no-deps --target build/typed .
	MYPYPATH=build/typed $(BIN)/mypy -p graft_sglang

format: $(BIN)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build
