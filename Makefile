# Every target makes and uses the project's own virtual environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
FRESH := $(VENV)/.kernels

.PHONY: help demo test lint bench chaos fuzz clean
help:  ## what can be done here
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

# What the demo needs, and no more.
$(RUNS): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("streamclust needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[plots,service]'
	@touch $@

# What the tests need: Spark and the peers too.
$(READY): $(RUNS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# numba's cache looks at a kernel's own file only, not at those it calls into: a change to any clears them all.
$(FRESH): $(RUNS) $(wildcard streamclust/_kernels/*.py)
	@rm -f streamclust/_kernels/__pycache__/*.nb[ic]
	@touch $@

demo: $(FRESH)  ## the service on a drifting stream, with its dashboard; pictures at the end
	$(BIN)/streamclust demo $(DEMO)

test: $(READY) $(FRESH)  ## every test, doctests included
	$(BIN)/python -m pytest -n auto

lint: $(READY)  ## ruff, mypy, the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY) $(FRESH)  ## every benchmark, the peer beside us
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script $(BENCH) || exit 1; done

chaos: $(READY) $(FRESH)  ## kill the service fifty times, and count what it learnt
	$(BIN)/python tests/chaos/kill.py $(CHAOS)

fuzz: $(READY) $(FRESH)  ## a million messages, half of them rubbish, through a broker
	$(BIN)/python tests/chaos/fuzz.py $(FUZZ)

clean:  ## forget the environment and everything built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache demo-output
