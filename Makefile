# Podline's commands. Everything is set up on first use; `make help` lists what there is.
# Without PYTHON=…, deployments/setup.sh takes the first of python3.11, python3.12, python3.13 and python3 that fits.
PYTHON ?=
ROOT ?= podline-root
# Test files at a time: one more than two cores, since tests mostly wait for servers and processes. Each may need 2 GB of
# memory.
TEST_WORKERS ?= 3
# Hypothesis draws the same examples each time here, and other ones each time where pytest is called without this.
# Bytecode is written even where the environment forbids it: rewriting 430 files of tests takes each worker 10 s.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --hypothesis-profile ci

VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup setup-gpu run test test-slow test-long test-wheel test-tpu check docs wheel lock clean

help: ## this list
	@echo "Podline: images become TFRecords, a trained model and a report, every night."
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /|/' | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(READY) ## make the virtual environment in .venv and install the locked dependencies

# An environment that no longer runs, since the system's Python was upgraded or this folder was moved, is made again.
ifneq ($(wildcard $(READY)),)
ifneq ($(shell $(BIN)/podline --version >/dev/null 2>&1; echo $$?),0)
.PHONY: $(READY)
endif
endif

# The lock has hashes and no address: packages come from wherever this machine's pip gets its own.
$(READY): requirements.lock pyproject.toml deployments/setup.sh
	@PYTHON="$(PYTHON)" bash deployments/setup.sh $(VENV) requirements.lock
	@touch $@

setup-gpu: $(READY) ## add NVIDIA's libraries to .venv, so that every command can use GPUs; see docs/how-to/gpu.md
	@bash deployments/setup.sh $(VENV) deployments/gpu.lock

run: $(READY) ## the whole flow on the built-in sample, here, on the CPU: convert, validate, train, evaluate, report
	@echo "Podline: the whole flow on the drawn sample; everything it makes goes to $(ROOT)/"
	@$(BIN)/podline run sample --root $(ROOT)

test: $(READY) ## run the tests (the slow ones are in test-slow and test-long)
	@echo "Podline: running the tests"
	@$(PYTEST)

test-slow: $(READY) ## run the tests that take minutes
	@echo "Podline: running the slow tests"
	@$(PYTEST) -m slow --timeout 1800

test-long: $(READY) ## run the tests that take an hour: random kills, and others with many repetitions
	@echo "Podline: running the long tests"
	@$(PYTEST) -m long --timeout 7200 -rAP

test-wheel: $(READY) ## build the wheel, install it elsewhere with deployments/cpu.lock alone, and use all of it; minutes
	@echo "Podline: trying the wheel in an environment of its own"
	@$(PYTEST) -n 0 -m slow tests/installed/test_wheel.py

test-tpu: $(READY) ## install deployments/tpu.lock elsewhere and run the chain on the CPU with that TensorFlow; minutes
	@echo "Podline: trying the TPU build of TensorFlow on the CPU"
	@$(PYTEST) -n 0 -m slow tests/installed/test_tpu_build.py

check: $(READY) ## lint, format, types, layers, dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/deptry --no-ansi podline beam_jobs tasks flows deployments

docs: $(READY) ## build the pages of docs/ as a site, in site/; a link that leads nowhere is an error
	$(BIN)/python -m zensical build --strict --clean

wheel: $(READY) ## build the package as an sdist, and a wheel of that, in dist/
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist .

lock: $(READY) ## compile requirements.lock and deployments/{cpu,gpu,tpu}.lock again from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --universal --generate-hashes --no-header --extra cpu --extra dask --extra suspects --extra pretrained --group dev \
	  --python-version 3.11 --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --universal --generate-hashes --no-header --extra cpu --extra dask --extra pretrained \
	  --constraint requirements.lock --python-version 3.11 --output-file deployments/cpu.lock
	$(BIN)/uv pip compile pyproject.toml --universal --generate-hashes --no-header --extra gpu --extra dask --extra pretrained \
	  --constraint requirements.lock --python-version 3.11 --output-file deployments/gpu.lock
	$(BIN)/uv pip compile pyproject.toml --generate-hashes --no-header --extra tpu --extra pretrained --constraint requirements.lock \
	  --python-version 3.11 --python-platform x86_64-manylinux_2_31 --output-file deployments/tpu.lock

clean: ## remove the virtual environment
	rm -rf $(VENV)
