# Everything a clone needs: `make demo` and `make test` set up what they use.
#
#   make VENV=/path/to/env test    in an environment of yours: it gets what is
#                                  missing, its own TensorFlow is kept
#   make PYTHON=python3.12 demo    another Python for the new environment
#   make test PYTEST_ARGS="-k op"  more words for pytest; BENCH_ARGS likewise
#   make test PYTEST_WORKERS=0     all tests in one process

SHELL := /bin/bash
.SHELLFLAGS := -e -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

VENV ?= .venv
PY := $(VENV)/bin/python
STAMPS := $(VENV)/.tf_ecornn

# The first Python here that TensorFlow has wheels for.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
	2> /dev/null && { echo $$p; break; }; done)

export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
export TF_CPP_MIN_LOG_LEVEL ?= 2

CC_FILES = $(shell find cc cuda tests -name '*.cc' -o -name '*.cu' -o -name '*.h')
DEMO := build/demo
TORCH_ENV := build/torch-env
# Where PyTorch has a version without CUDA, which spares gigabytes.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# Test files that run at once. Each process takes up to 2 GB.
PYTEST_WORKERS ?= 2

# Two pips in one environment do not go together; the build has its own jobs.
.NOTPARALLEL:
.PHONY: help build demo test bench lint format sanitize cuda-report clean distclean

help:
	@echo "make demo      train Keras classifiers with the stock layers and with ours"
	@echo "make test      run the tests"
	@echo "make bench     measure against stock Keras, XLA, BlockLSTMV2 and PyTorch"
	@echo "make build     compile the library in place"
	@echo "make lint      check style;  make format puts it right"
	@echo "make sanitize  run the engine's own tests under sanitizers"
	@echo "make cuda-report  registers and spills of the CUDA kernels, as last built"
	@echo "make clean     remove what was built;  make distclean also removes .venv"

# --- The environment -------------------------------------------------------

$(PY):
	@test -n "$(PYTHON)" || { echo "tf_ecornn: Python 3.10 to 3.13 is needed;" \
		"install one or name it: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -f $(PY); echo "tf_ecornn: no environment" \
		"could be made (Debian, Ubuntu: apt-get install python3-venv)." >&2; exit 1; }

# A stamp says that what the extra of its name lists is installed. One pip run
# each, TensorFlow in it, so that no extra moves a version TensorFlow relies on.
$(STAMPS)/%: pyproject.toml | $(PY)
	@echo "Installing what 'make $*' needs into $(VENV)"
	@mkdir -p $(STAMPS)
	@$(PY) cc/buildtools/requirements.py $(EXTRAS) > $(STAMPS)/requirements-$*.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check \
		-r $(STAMPS)/requirements-$*.txt
	@touch $@

$(STAMPS)/build: EXTRAS := build tensorflow
$(STAMPS)/demo: EXTRAS := build tensorflow examples
$(STAMPS)/test: EXTRAS := build tensorflow examples test
$(STAMPS)/lint: EXTRAS := dev

# PyTorch and TensorFlow keep out of each other's way.
$(TORCH_ENV)/.ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "tf_ecornn: PyTorch's environment needs" \
		"PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Installing PyTorch, a peer in the benchmark, into $(TORCH_ENV)"
	@$(PYTHON) -m venv $(TORCH_ENV)
	@$(TORCH_ENV)/bin/python cc/buildtools/requirements.py torch \
		> $(TORCH_ENV)/requirements.txt
	@$(TORCH_ENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		--extra-index-url $(TORCH_INDEX) -r $(TORCH_ENV)/requirements.txt
	@touch $@

# --- The build -------------------------------------------------------------

# Always asked: it compiles what is not current and says nothing otherwise.
build: $(STAMPS)/build
	@$(PY) setup.py --quiet build_ext --inplace

# The environment that is ours also gets the package, pointing here, so that
# `.venv/bin/python examples/...` works; others are left without.
$(STAMPS)/package: setup.py pyproject.toml | build
ifeq ($(VENV),.venv)
	@$(PY) -m pip install --quiet --disable-pip-version-check \
		--no-build-isolation --no-deps -e .
endif
	@touch $@

# --- What it is for --------------------------------------------------------

demo: $(STAMPS)/demo build $(STAMPS)/package
	@mkdir -p $(DEMO)
	$(PY) examples/keras_lstm_classification.py --layer both \
		--json $(DEMO)/italy_power_demand.json --plot $(DEMO)/italy_power_demand.png
	$(PY) examples/keras_lstm_classification.py --layer both --data synthetic \
		--samples 937 --timesteps 100 --features 1 --units 1000 --batch-size 100 \
		--epochs 1 --json $(DEMO)/synthetic.json --plot $(DEMO)/synthetic.png
	$(PY) examples/japanese_vowels.py --layer both \
		--json $(DEMO)/japanese_vowels.json --plot $(DEMO)/japanese_vowels.png

test: $(STAMPS)/test build $(STAMPS)/package
	$(PY) -m pytest -n $(PYTEST_WORKERS) --dist loadfile $(PYTEST_ARGS)

# Options for PyTorch (--without-torch, --torch-python) do without this environment.
bench: $(STAMPS)/demo build $(STAMPS)/package \
		$(if $(filter --without-torch --torch-python%,$(BENCH_ARGS)),,$(TORCH_ENV)/.ready)
	$(PY) examples/benchmarks/run.py $(BENCH_ARGS)

lint: $(STAMPS)/lint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	@echo "clang-format --dry-run -Werror ($(words $(CC_FILES)) files)"
	@$(VENV)/bin/clang-format --dry-run -Werror $(CC_FILES)

format: $(STAMPS)/lint
	$(PY) -m ruff check --fix-only --select I .
	$(PY) -m ruff format .
	@echo "clang-format -i ($(words $(CC_FILES)) files)"
	@$(VENV)/bin/clang-format -i $(CC_FILES)

sanitize:
	$(or $(PYTHON),python3) cc/buildtools/engine_test.py address,undefined thread

cuda-report:
	@$(or $(PYTHON),python3) cc/buildtools/cuda_resources.py

clean:
	rm -rf build dist tf_ecornn.egg-info tf_ecornn/_ecornn.so tf_ecornn/_build_info.py

distclean: clean
	rm -rf .venv
