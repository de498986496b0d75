# Every target makes and uses the project's own virtual environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready

.PHONY: help demo test plain oldest coverage lint docs gallery rendered papers wheel release bench chaos fuzz soak clean
help:  ## what can be done here
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install --no-compile

# What the demo needs, and no more. Kernels compile as soon as the library's own requirements are there, while the rest
# is installed; whoever needs one that is not compiled yet waits for it, or compiles it.
$(RUNS): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("streamclust needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	@echo "[1/4] making an environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "[2/4] installing the library's requirements (numpy, scipy, numba, river, scikit-learn)"
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' > $(VENV)/library.txt
	@$(PIP) --requirement $(VENV)/library.txt
	@echo "[3/4] installing the service, its dashboard and pictures; kernels compile beside"
	@$(BIN)/python -m streamclust.warm > $(VENV)/warm.log 2>&1 & $(PIP) --editable '.[plots,service]'
	@touch $@
	@echo "[4/4] installed"

# What the tests need: Spark and the peers too.
$(READY): $(RUNS)
	$(PIP) --editable '.[dev]'
	$(PIP) --no-deps 'bertopic>=0.17'
	@touch $@

demo: $(RUNS)  ## the service on a drifting stream, with its dashboard, until Ctrl-C; pictures at the end
	@$(BIN)/streamclust demo $(DEMO)

test: $(READY)  ## every test, doctests included
	$(BIN)/python -m pytest -n auto --dist worksteal

# One process: several would compile the same kernels. With little optimisation that takes less time.
PLAIN := tests/test_plain_numba.py tests/test_kernel_cache.py tests/test_kernel_parts.py tests/test_read_only.py \
	tests/test_moments.py tests/tree tests/engine/test_cluster_updates.py
plain: $(READY)  ## tests of kernels that numba compiles alone, as it does where its internals are not as expected
	STREAMCLUST_PLAIN_NUMBA=1 NUMBA_OPT=1 HYPOTHESIS_PROFILE=small $(BIN)/python -m pytest $(PLAIN)

oldest: $(READY)  ## some tests with the oldest versions that the bounds allow
	$(BIN)/nox --session oldest

coverage: $(READY)  ## every test, and which lines none of them runs
	$(BIN)/python -m pytest -n auto --cov --cov-report term:skip-covered

lint: $(READY)  ## ruff, mypy, the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)  ## the documentation, into build/site; every block of its pages is run
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

gallery: $(READY)  ## run the examples, for their pages
	$(BIN)/python docs/_site/gallery.py

rendered: $(READY)  ## run the tutorial and other pages whose results are committed; writes them and the notebooks
	$(BIN)/python docs/_site/render.py

wheel: $(READY)  ## a wheel that brings compiled kernels, into dist
	rm -rf build/wheel build/lib
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(BIN)/python .ci/platform_wheel.py build/wheel/streamclust-*.whl --into dist

papers: $(READY)  ## repeat the papers' tables and figures; writes docs/papers
	$(BIN)/python -m benchmarks.papers $(PAPERS)

release:  ## sdist and wheels for this Python, each tried in an empty environment, into dist
	PYTHON=$(PYTHON) .ci/release dist

bench: $(READY)  ## every benchmark, the peer beside us
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script $(BENCH) || exit 1; done

chaos: $(READY)  ## kill the service fifty times, and count what it learnt; OF=group: members of a group; OF=brokers: three brokers too
	$(BIN)/python tests/chaos/$(or $(OF),kill).py $(CHAOS)

fuzz: $(READY)  ## a million messages, half of them rubbish, through a broker
	$(BIN)/python tests/chaos/fuzz.py $(FUZZ)

soak: $(READY)  ## two hundred long random streams with every trouble: nothing lost, no failure, no growth
	$(BIN)/python tests/chaos/soak.py $(SOAK)

clean:  ## forget the environment and everything built
	rm -rf $(VENV) .nox .coverage build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache demo-output
