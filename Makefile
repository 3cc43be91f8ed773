# Every target builds or updates the one virtual environment first; nothing needs root.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test lint types docs pytest bench format clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(STAMP): pyproject.toml
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { echo "no virtual environment: is $(PYTHON) 3.11 to 3.13, with venv?"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## fit three parties' columns together, print a table, draw a picture
	$(BIN)/python -m vpem.demo

test: lint types docs pytest ## all checks: lint, types, documentation, tests

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy --strict on src/
	$(BIN)/mypy

# Not --quiet: it hides warnings from --strict too.
docs: $(STAMP) ## the documentation, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pytest: $(STAMP) ## the tests; REQUIRE_ALL=1 turns every skip into a failure
	REQUIRE_ALL=$(REQUIRE_ALL) $(BIN)/python -m pytest

bench: $(STAMP) ## speed and memory, side by side with scikit-learn and a naive simulation; minutes
	$(BIN)/python benchmarks/speed.py

format: $(STAMP) ## put the code into its usual form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
