# Each target makes its own virtual environment. They need Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= demo
MINUTES ?= 2
SCRATCH ?= /tmp
# Versions of Python that the project supports; setup.cfg and .github/workflows/ci.yml name the same.
PYTHONS := 3.11 3.12 3.13
# Python compiles the modules that are imported, which are a small part of the installed modules. Images of containers
# often forbid to keep the compiled modules; then each process would compile its modules again, JAX's for 4 seconds.
export PYTHONDONTWRITEBYTECODE :=
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile --editable
# The tests of `make test-matrix` and `make test-floors`: the core on JAX, without torch and without other processes.
QUICK := tests/config tests/test_console.py tests/test_layout.py tests/test_wheel.py tests/batches/test_hashing.py \
         tests/batches/test_order.py tests/corpus/test_store.py tests/models/test_dropout.py tests/models/test_packing.py \
         tests/objectives/test_pretraining.py tests/training/test_train.py tests/training/test_checkpoint.py \
         tests/interop/test_stablehlo.py
FLOORS := tests/readers tests/corpus tests/tasks/test_scoring.py tests/tokenizer/test_changes.py tests/tokenizer/test_tokenizer.py

.PHONY: help demo test test-slow test-shared test-matrix test-floors coverage test-tpu test-gpu-compiler test-beam test-gcs test-s3 lint format docs wheel bench bench-device faults clean

help:
	@echo 'make demo         train, evaluate, export and try a small BERT (a few minutes; downloads packages only)'
	@echo 'make test         the test suite; needs nothing outside of the repository'
	@echo 'make test-slow    the tests that take minutes'
	@echo 'make test-shared  the tests that read whole data sets, in ../shared/data'
	@echo 'make test-matrix  the core tests on Python $(PYTHONS), with the newest JAX of each (in .venv-VERSION)'
	@echo 'make coverage     the test suite, and the lines of bert_jax that it does not run (in coverage.xml)'
	@echo 'make test-floors  the core tests with the oldest version of each requirement (in .venv-floors)'
	@echo 'make test-tpu     the tests of what the TPU compiler makes of the recipes (no TPU needed; 700 MB of libtpu in .venv-tpu)'
	@echo 'make test-gpu-compiler  the same of the CUDA compiler (no GPU needed; 3 GB in .venv-gpu)'
	@echo 'make test-beam    the preparation as an Apache Beam pipeline, on its local runners (in .venv-beam)'
	@echo 'make test-gcs     a run at gs://, against a stand-in of Cloud Storage on this machine (in .venv-gcs)'
	@echo 'make test-s3      a run at s3://, against moto, a stand-in of S3 on this machine (in .venv-s3)'
	@echo 'make lint         ruff, mypy and shellcheck'
	@echo 'make format       rewrite the code as ruff formats it'
	@echo 'make docs         the documentation site with the API reference, in build/site/'
	@echo 'make wheel        a wheel, in dist/'
	@echo 'make bench        every benchmark (an hour); BOOKS=ARCHIVE PAIRS=FILE for other data than the samples'
	@echo 'make bench-device  the GPU or TPU at hand, in 9 minutes: its numbers against the CPU, then its speed, beside torch'
	@echo 'make faults       faults injected into the commands at random; MINUTES=2 (or 20, 120, 600), SCRATCH=DIR on the file system to try'
	@echo 'make clean        remove virtual environments, caches, built files and the demo'

# One stamp per extra: a target installs what it needs, once.
$(VENV)/.installed-%: setup.cfg pyproject.toml setup.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) '.[$*]'
	touch $@

demo: $(VENV)/.installed-demo
	PATH="$(abspath $(BIN)):$$PATH" launch/demo.sh $(DEMO)

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

coverage: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pytest-cov>=6'
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --cov=bert_jax --cov-report=term:skip-covered --cov-report=xml

# These compute more than they compile: not with the flags of tests/conftest.py.
test-slow: export XLA_FLAGS := --xla_backend_optimization_level=1 $(XLA_FLAGS)
test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m 'slow and not shared and not tpu and not gpu_compiler and not beam and not gcs and not s3'

test-shared: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m shared

# Interpreters are found by name: python3.11, python3.12, python3.13. One after the other: each compiles.
test-matrix: $(PYTHONS:%=test-python-%)

test-python-%:
	test -x .venv-$*/bin/python || python$* -m venv .venv-$*
	.venv-$*/bin/python $(PIP_INSTALL) '.[demo]' pytest 'setuptools>=77'
	.venv-$*/bin/python -c 'import sys, jax; print("Python", sys.version.split()[0], "JAX", jax.__version__)'
	.venv-$*/bin/python -m pytest -q $(QUICK)

# uv chooses the lowest versions of what setup.cfg names. Requirements of requirements are as new as they may be.
test-floors:
	test -x .venv-floors/bin/uv || { $(PYTHON) -m venv .venv-floors && .venv-floors/bin/python -m pip install --quiet uv; }
	.venv-floors/bin/uv pip install --quiet --python .venv-floors/bin/python --resolution lowest-direct \
	    --editable '.[data,demo,tasks]' 'nervaluate>=1.2' 'pytest>=8.4' 'setuptools>=77'
	.venv-floors/bin/python -m pytest -q --ignore tests/readers/test_hub_models.py --ignore tests/corpus/test_datatrove.py $(QUICK) $(FLOORS)

# An environment and processes of its own: libtpu is large, and a process that has loaded it can run nothing else.
test-tpu:
	test -x .venv-tpu/bin/python || $(PYTHON) -m venv .venv-tpu
	.venv-tpu/bin/python $(PIP_INSTALL) '.[tpu]' pytest
	.venv-tpu/bin/python -m pytest -m tpu tests/tpu

# Likewise: a process with the CUDA plugin would look for a GPU.
test-gpu-compiler:
	test -x .venv-gpu/bin/python || $(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/python $(PIP_INSTALL) '.[gpu-compiler]' pytest
	.venv-gpu/bin/python -m pytest -m gpu_compiler tests/gpu_compiler

# An environment of its own: Beam needs an older protobuf than the rest.
test-beam:
	test -x .venv-beam/bin/python || $(PYTHON) -m venv .venv-beam
	.venv-beam/bin/python $(PIP_INSTALL) '.[beam,clean,storage]' pytest rjieba
	.venv-beam/bin/python -m pytest -m beam tests/beam

# An environment of its own: gcsfs brings gRPC, which nothing else here needs.
test-gcs:
	test -x .venv-gcs/bin/python || $(PYTHON) -m venv .venv-gcs
	.venv-gcs/bin/python $(PIP_INSTALL) '.[storage,tasks]' pytest
	.venv-gcs/bin/python -m pytest -m gcs tests/gcs

# An environment of its own: s3fs and moto agree on few versions of botocore, which pip takes half an hour to find.
test-s3:
	test -x .venv-s3/bin/uv || { $(PYTHON) -m venv .venv-s3 && .venv-s3/bin/python -m pip install --quiet uv; }
	.venv-s3/bin/uv pip install --quiet --python .venv-s3/bin/python --editable '.[storage]' pytest 'moto[server]'
	.venv-s3/bin/python -m pytest -m s3 tests/s3

lint: $(VENV)/.installed-test $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/shellcheck launch/*.sh launch/slurm.sbatch tests/launch/worker_bin/* benchmarks/all.sh

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-dev
	$(BIN)/python docs/reference.py docs/api
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo 'build/site/index.html; its search needs a server: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site'

# Without what an earlier build left: setuptools would put modules that are gone into the wheel.
wheel:
	rm -rf build
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check . --no-deps --wheel-dir dist

bench: $(VENV)/.installed-test
	PATH="$(abspath $(BIN)):$$PATH" benchmarks/all.sh

# With the Python at hand, which has the accelerator's JAX; torch is optional there.
bench-device:
	$(PYTHON) -m benchmarks.device --minutes 9 --json device_bench.json

faults: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.faults --minutes $(MINUTES) --scratch $(SCRATCH)
	$(BIN)/python -m benchmarks.odd_places

clean:
	rm -rf $(VENV) .venv-* $(DEMO) .cache .pytest_cache .ruff_cache .mypy_cache *.egg-info build dist docs/api
