# Each target makes its own .venv and needs only Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= demo

.PHONY: help demo test test-slow test-tpu test-beam lint format bench clean

help:
	@echo 'make demo       train, evaluate, export and try a small BERT (a few minutes, no download)'
	@echo 'make test       the test suite'
	@echo 'make test-slow  the tests that take minutes (kill trials)'
	@echo 'make test-tpu   the tests of what the TPU compiler makes of it (no TPU needed; 700 MB of libtpu in .venv-tpu)'
	@echo 'make test-beam  the preparation as an Apache Beam pipeline, on its local runners (in .venv-beam)'
	@echo 'make lint       ruff, mypy and shellcheck'
	@echo 'make format     let ruff rewrite the code'
	@echo 'make bench      every benchmark, on ../shared/data (an hour)'
	@echo 'make clean      remove .venv, caches and the demo'

# One stamp an extra: a target installs what it needs, once.
$(VENV)/.installed-%: setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@

demo: $(VENV)/.installed-demo
	PATH="$(abspath $(BIN)):$$PATH" launch/demo.sh $(DEMO)

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 -m 'not slow and not tpu and not beam'

test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m 'slow and not tpu and not beam'

# An environment and processes of its own: libtpu is large, and a process that has loaded it runs nothing else.
test-tpu:
	test -x .venv-tpu/bin/python || $(PYTHON) -m venv .venv-tpu
	.venv-tpu/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[tpu]' pytest
	.venv-tpu/bin/python -m pytest -m tpu tests/tpu

# An environment of its own: Beam wants an older protobuf than the rest.
test-beam:
	test -x .venv-beam/bin/python || $(PYTHON) -m venv .venv-beam
	.venv-beam/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[beam,storage]' pytest
	.venv-beam/bin/python -m pytest -m beam tests/beam

lint: $(VENV)/.installed-test $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/shellcheck launch/*.sh launch/slurm.sbatch tests/launch/worker_bin/*

format: $(VENV)/.installed-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-test
	PATH="$(abspath $(BIN)):$$PATH" benchmarks/all.sh

clean:
	rm -rf $(VENV) .venv-tpu .venv-beam $(DEMO) .cache .pytest_cache .ruff_cache .mypy_cache *.egg-info build
