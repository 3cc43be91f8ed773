# Every target builds or updates the one virtual environment first, with what it needs; nothing needs root.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FIGURES := $(VENV)/.installed-figures
# Without --no-compile pip compiles every file of every package, most of which are never imported: a third of the time.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable
PYTEST = $(BIN)/python -m pytest --numprocesses auto --dist worksteal

.PHONY: help demo test check lint types docs pytest test-processors test-network test-flower soak bench bench-network format clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

$(FIGURES): pyproject.toml
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { echo "no virtual environment: is $(PYTHON) 3.11 or later, with venv?"; exit 1; }
	$(INSTALL) '.[figures]'
	@touch $@

$(STAMP): $(FIGURES)
	$(INSTALL) '.[dev]'
	@touch $@

demo: $(FIGURES) ## fit three parties' columns together, print a table, draw a picture
	$(BIN)/python -m vpem.demo

test: lint types docs pytest ## all checks: lint, types, documentation, tests

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy --strict on src/
	$(BIN)/mypy

FAST = tests/core tests/simulation tests/verdict/test_rules.py tests/test_imports.py --ignore tests/core/test_tracking.py

check: lint types ## lint, types and fast tests, about a minute, while you work; SELECT="tests/cli" for other tests
	$(PYTEST) -q -m 'not long' --durations=0 --durations-min=5 $(or $(SELECT),$(FAST))

# Not --quiet: it hides warnings from --strict too.
docs: $(STAMP) ## the documentation, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pytest: $(STAMP) ## the tests, or SELECT of them; REQUIRE_ALL=1 turns every skip into a failure
	REQUIRE_ALL=$(REQUIRE_ALL) $(PYTEST) $(SELECT)

# What a processor decides: the kernels that OpenBLAS takes, the instructions that numba compiles to. Settings that this
# one cannot run are left out. numba keeps compiled code by name and features of the processor, so that none is mixed up.
CAN = $(if $(shell grep -m1 -w $(1) /proc/cpuinfo 2>/dev/null),$(2))
PROCESSORS := NUMBA_CPU_NAME=generic $(call CAN,sse4_2,OPENBLAS_CORETYPE=Nehalem) \
	$(call CAN,avx2,OPENBLAS_CORETYPE=Haswell) $(call CAN,avx512f,OPENBLAS_CORETYPE=SkylakeX)

test-processors: $(STAMP) ## the tests that compare bits, engines or digits, as on other processors
	@failed=; for setting in $(PROCESSORS); do \
		echo "== $$setting"; \
		env $$setting FEWER_EXAMPLES=4 REQUIRE_ALL=$(REQUIRE_ALL) $(PYTEST) -m 'processors and not long' || failed="$$failed $$setting"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed with:$$failed"; exit 1; fi

test-network: $(STAMP) ## real processes with faults: kills, cuts, bad connections, strangers; minutes
	REQUIRE_ALL=$(REQUIRE_ALL) $(PYTEST) -m network tests/network

FLOWER ?= flower

test-flower: $(STAMP) ## a SuperLink and SuperNodes of Flower as processes, with faults; minutes
	REQUIRE_ALL=$(REQUIRE_ALL) $(BIN)/python -m pytest -m '$(FLOWER)' tests/flower

KILLS ?= 100
SEED ?= 0

soak: $(STAMP) ## kills in meetings, matching, fits and predictions, 100 each or KILLS=20 PARTS="match fit"; an hour
	PYTHONPATH=tests $(BIN)/python -m network.soak $(KILLS) $(SEED) $(PARTS)

bench: $(STAMP) ## speed and memory, side by side with scikit-learn and a naive simulation; minutes
	$(BIN)/python benchmarks/speed.py

bench-network: $(STAMP) ## links beside bare zenoh and bare sockets, and whole studies; minutes
	$(BIN)/python benchmarks/network.py
	$(BIN)/python benchmarks/studies.py

format: $(STAMP) ## put the code into its usual form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
