# Each target makes its own .venv and needs only Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= demo

.PHONY: help demo test test-slow lint format bench clean

help:
	@echo 'make demo       train, evaluate, export and try a small BERT (a few minutes, no download)'
	@echo 'make test       the test suite'
	@echo 'make test-slow  the tests that take minutes (kill trials)'
	@echo 'make lint       ruff and mypy'
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
	$(BIN)/python -m pytest -n 2 -m 'not slow'

test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.installed-test $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-test
	PATH="$(abspath $(BIN)):$$PATH" benchmarks/all.sh

clean:
	rm -rf $(VENV) $(DEMO) .cache .pytest_cache .ruff_cache .mypy_cache *.egg-info build
