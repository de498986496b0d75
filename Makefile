# Every target makes and uses the project's own virtual environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test lint bench clean
help:  ## what can be done here
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "streamclust needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

demo: $(READY)  ## a million events into a tree, with a picture of its leaves
	$(BIN)/python examples/tree_of_a_million.py

test: $(READY)  ## every test, doctests included
	$(BIN)/python -m pytest -n auto

lint: $(READY)  ## ruff, mypy, the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## every benchmark, the peer beside us
	@for script in benchmarks/*.py; do \
	    case $$script in */_*) continue;; esac; \
	    echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:  ## forget the environment and everything built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache demo-output
