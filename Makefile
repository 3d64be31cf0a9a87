# On a machine with Python 3.11 or later, git and make, each target below first does all set-up, once.
#
#   make demo     train the quickstart recipe, kill a rank on the way, sample from the model, print the ledger
#   make test     run the test suite
#   make chaos    the whole sweep of faults: hours; it goes on where it stopped, SHARD=0/4 does a quarter
#   make lint     ruff, mypy and the import rules of docs/architecture.md
#   make format   let ruff rewrite what it can
#   make install  only the set-up
#   make clean    remove what the set-up made, but no run
#
# PYTHON=python3.12              another interpreter
# TORCH_INDEX=URL                take torch from this wheel index: a CPU build, or one for a CUDA version
# JOBS=4                         test processes
# TESTS='tests/launch -k stop'   a part of the suite

PYTHON ?= python3
TORCH_INDEX ?=
JOBS ?= 2
TESTS ?= tests
SHARD ?= 0/1
RESULTS ?= chaos-results.jsonl

BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
INSTALLED := .venv/installed

.PHONY: demo test chaos lint format install clean

demo: $(INSTALLED)
	$(BIN)/python -m argosy.drill.kill_once runs/quickstart 350 & \
	  $(BIN)/argosy train recipes/quickstart.toml --nproc 2 --run-dir runs/quickstart \
	    --set checkpoint.snapshot_every_steps=10 && wait
	$(BIN)/argosy incidents runs/quickstart
	$(BIN)/argosy sample runs/quickstart --prompt 'def '
	$(BIN)/argosy report runs/quickstart

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(JOBS) -m 'not slow' $(TESTS)

chaos: $(INSTALLED)
	$(BIN)/python tests/chaos/sweep.py --shard $(SHARD) --results $(RESULTS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(INSTALLED)

# torch comes by itself when it has an index of its own: everything else stays on the default one.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is missing or older than Python 3.11: name another with  make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	  echo "$(PYTHON) cannot make virtual environments: install its venv package (Debian: apt install python3-venv)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(if $(TORCH_INDEX),$(PIP_INSTALL) --no-deps --index-url $(TORCH_INDEX) torch)
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
