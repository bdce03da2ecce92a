# `make help` lists the targets. Each needs Python 3.11 and make, nothing else: the first call
# makes the environment VENV and installs the tested versions (constraints.txt) into it.
# Overridable: PYTHON, VENV, CONSTRAINTS, WORKERS (test processes), PYTESTFLAGS, DEVICE, SETTINGS,
# BENCHMARKS.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN = $(VENV)/bin
# Processes x threads = cores: one test process per core, one thread in each.
WORKERS ?= $(shell $(BIN)/python -c 'import os; print(len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count()))(0)))')
ONE_THREAD = OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
export PYTHONDONTWRITEBYTECODE =# compile once, not in every process
PYTESTFLAGS ?=
# Of the tests: cpu for all of them, cuda or second (tests/devices) for the contracts, there.
DEVICE ?= cpu
# Of tests/portable.py, such as "avx2 threads"; all of them by default.
SETTINGS ?=
# Sources of the compiled evaluator; without a C++ compiler the package does without it.
NATIVE = $(wildcard gpytorch_nkn/kernels/evaluation/cpp/native*)
BENCHMARKS ?= step drop_in_time time_series forecast_panel long_series covariates counts rates outputs classes uci tables askl dank spectral_gp large_tables scaling texture photographs grid_speed recovery bbob bo_real_loops gradients gpu

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-newest test-oldest test-portable lint docs linkcheck tutorials benchmarks clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.installed-demo ## Learn the monthly Mauna Loa CO2 series and forecast its last ten years
	@$(BIN)/gpytorch-nkn demo --report demo/report.html

test: $(VENV)/.installed-dev ## Run the tests, README code and tutorials (in smoke mode)
	@$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --device $(DEVICE) $(PYTESTFLAGS)

test-newest: ## Run the tests with the newest releases of all libraries (gigabytes: torch for GPUs)
	@$(MAKE) --no-print-directory test VENV=.venv-newest CONSTRAINTS=/dev/null

test-oldest: ## Run the tests with the oldest releases that setup.cfg accepts
	@mkdir -p build
	@sed -n '/^install_requires/,/^demo/s/^ *\([a-z_-]*\)>=\([0-9.]*\).*/\1==\2/p' setup.cfg > build/oldest.txt
	@$(MAKE) --no-print-directory test VENV=.venv-oldest CONSTRAINTS=build/oldest.txt

test-portable: $(VENV)/.installed-dev ## Run the tests that train or compare numbers under other arithmetic
	@$(BIN)/python -m tests.portable $(SETTINGS) -n $(WORKERS) --dist worksteal $(PYTESTFLAGS)

lint: $(VENV)/.installed-dev ## Check style, formatting, types, the direction of imports and prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(ONE_THREAD) $(BIN)/python -m pytest -q tests/test_structure.py tests/test_prose.py -k "import_direction or prose"

docs: $(VENV)/.installed-docs ## Build the site into docs/_build; a warning or a dead internal link is an error
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@$(BIN)/python docs/built_links.py docs/_build/html

linkcheck: $(VENV)/.installed-docs ## Ask the network whether the site's external links still lead somewhere
	@$(BIN)/python -m sphinx -q -b linkcheck docs docs/_build/linkcheck

tutorials: $(VENV)/.installed-dev ## Bring the notebooks in step with their scripts, run them in full
	set -e; for script in tutorials/*.py; do $(BIN)/jupytext --to ipynb --set-kernel python3 --update "$$script"; done
	$(BIN)/python -m pytest -p nbmake.pytest_plugin --nbmake --overwrite tutorials

benchmarks: $(VENV)/.installed-benchmarks ## Run the benchmarks (hours); tables go to benchmarks/results
	set -e; for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name --write; done; $(BIN)/python -m benchmarks.report

clean: ## Remove .venv, builds and caches
	rm -rf .venv .venv-newest .venv-oldest build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .coverage .coverage.* htmlcov
	find gpytorch_nkn -name '*.so' -delete
	find gpytorch_nkn tests benchmarks tutorials -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# The stamp $(VENV)/.installed-EXTRA is older than what it was installed from when that changes.
$(VENV)/.installed-%: setup.cfg setup.py pyproject.toml constraints.txt $(NATIVE)
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "Installing gpytorch_nkn[$*] into $(VENV): minutes the first time."
	@$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e '.[$*]'
	@touch $@
