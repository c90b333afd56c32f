# Two commands matter: `make demo` shows the main job, `make test` proves it.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint types golden bench clean

demo: .venv/core
	@rm -rf runs/demo data/demo
	$(BIN)/reasonrag generate --dataset atlas --limit 40 --run runs/demo
	$(BIN)/reasonrag pairs runs/demo --out data/demo

test: lint types
	$(BIN)/pytest --numprocesses 2

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: .venv/test
	$(BIN)/mypy

# Write golden files anew, after reading why they differ.
golden: .venv/test
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

clean:
	rm -rf .venv runs/demo data/demo
