# Two commands matter: `make demo` shows the main job, `make test` proves it.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# A build of PyTorch without CUDA where there is one; the pin is repeated so that nothing replaces it.
TORCH ?= torch==2.13.0
# The real FlashRAG; what the registry calls flashrag is something else. Its dependencies are not for the tests.
FLASHRAG := flashrag-dev==0.3.0.dev20260919

.PHONY: demo test test-core lint types golden bench clean

demo: .venv/core
	@rm -rf runs/demo data/demo
	$(BIN)/reasonrag generate --dataset atlas --limit 40 --run runs/demo
	$(BIN)/reasonrag pairs runs/demo --out data/demo

test: lint types .venv/embed
	$(BIN)/pytest --numprocesses 2

# Without the 1.8 GB that real encoders need; tests of them are skipped, visibly.
test-core: lint types
	$(BIN)/pytest --numprocesses 2

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: .venv/test
	$(BIN)/mypy

# Write golden files anew, after reading why they differ.
golden: .venv/embed
	$(BIN)/pytest --quiet --refresh-golden

# Side-by-side measurements on real data; see benchmarks/README.md.
bench: .venv/core
	$(BIN)/python benchmarks/main_job.py

.venv/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "reasonrag needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 demo"; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/core: .venv/python pyproject.toml
	$(PIP) --editable .
	@touch $@

.venv/test: .venv/core pyproject.toml
	$(PIP) --editable '.[test]'
	@touch $@

.venv/embed: .venv/test pyproject.toml
	$(PIP) '$(TORCH)'
	$(PIP) '$(TORCH)' --editable '.[test,embed]'
	$(PIP) --no-deps $(FLASHRAG)
	$(PIP) langid numba
	@touch $@

clean:
	rm -rf .venv runs/demo data/demo
