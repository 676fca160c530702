# The book and its package. `make help` lists what there is.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    := $(BIN)/python -m press

# cpu: the CPU build of torch. cuda: what the package index has, on Linux that is
# the CUDA build.
TORCH ?= cpu

# What `make rerun` and `make publish` take.
CHAPTER ?=
PROFILE ?= quick
DEVICE  ?= auto
# For example: make rerun CHAPTER=08 PARAMETERS="-p seed=1"
PARAMETERS ?=
PORT    ?= 8000

.DEFAULT_GOAL := help
.PHONY: bench help env doctor book site pdf named full rerun publish timings serve \
  lab slides test ranges processors check lint ruff types import-layers clean-runtime fuzz clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Python compiles torch again in each process that may not keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE

# --- environment --------------------------------------------------------------

INSTALLED := $(VENV)/.installed-$(TORCH)

env: $(INSTALLED) ## Make the Python environment in .venv

define CHECK_PYTHON
import sys
found = ".".join(map(str, sys.version_info[:2]))
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit(
        f"make: $(PYTHON) is Python {found}, and the book needs 3.11, 3.12 or 3.13; "
        "name one, for example: make book PYTHON=python3.12"
    )
endef
export CHECK_PYTHON

# Torch goes first and alone, as only its own index has CPU builds for Linux: their
# version 2.13.0+cpu counts as higher than 2.13.0, so pip prefers them wherever it
# finds one. Where that index cannot be reached, pip goes on with the others at
# once. Elsewhere than on Linux, the usual index has CPU builds.
CPU_INDEX := https://download.pytorch.org/whl/cpu
TORCH_FROM := $(if $(filter cpu-Linux,$(TORCH)-$(shell uname -s)),--retries 0 --extra-index-url $(CPU_INDEX))
# What is imported is compiled then; the rest, two thirds, never. Pip 25.1 is the first
# that knows groups.
PIP_INSTALL := $(BIN)/python -m pip --disable-pip-version-check -qq install --no-compile
TORCH_PINS := $(shell grep -E '^torch(vision)?==' constraints.txt)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c "$$CHECK_PYTHON"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	rm -f $(VENV)/.installed-*
	@echo "Installing what the book runs on; this takes a minute or two."
	$(PIP_INSTALL) 'pip>=25.1'
	$(PIP_INSTALL) $(TORCH_FROM) $(TORCH_PINS)
	$(PIP_INSTALL) --constraint constraints.txt --editable . --group dev
	@touch $@

doctor: ## Say what this machine lacks, before or after `make env`
	@python=$(BIN)/python; test -x $$python || python=$(PYTHON); \
	  $$python src/press/doctor.py

# --- the book -----------------------------------------------------------------

book: env ## Execute what is stale, then build the site into _build/html
	$(RUN) publish --stale
	@$(MAKE) --no-print-directory site

site: env ## Build the site from the executed chapters, strictly
	$(RUN) site

pdf: site ## Print the book into _build/robustness-measured.pdf
	$(RUN) pdf

slides: env ## Make slides of the chapters, with the text as speaker's notes
	$(RUN) slides $(CHAPTER)

lab: env ## Open the chapters in JupyterLab
	$(BIN)/python -m jupyterlab --notebook-dir notebooks

named:
	@test -n "$(CHAPTER)" || \
	  { echo "make: name a chapter, for example: make rerun CHAPTER=08" >&2; exit 2; }

full: env ## Measure what is stored anew, in slices: DEVICE=cpu|cuda
	$(BIN)/python -m robustbook.studies all --device $(DEVICE)

rerun: named env ## Run one chapter yourself: CHAPTER=08 PROFILE=quick|full
	$(RUN) run $(CHAPTER) --profile $(PROFILE) --device $(DEVICE) $(PARAMETERS)

publish: env ## Execute every chapter anew for the site
	$(RUN) publish

timings: env ## Time each chapter in the quick profile
	@for text in notebooks/*.md; do start=$$(date +%s); \
	  $(RUN) run $$text --device cpu && echo "$$(($$(date +%s) - start)) s"; done

serve: book ## Build the book and show it on localhost:8000 (PORT=…)
	$(BIN)/python -m http.server --directory _build/html --bind 127.0.0.1 $(PORT)

# --- tests --------------------------------------------------------------------

# As many tests at a time as cores.
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS)

# Run targets and say how long they took.
phase = start=$$(date +%s); $(MAKE) --no-print-directory $(1) && \
  echo "make: $(2): $$(($$(date +%s) - start)) s"

# One worker builds the site, and looks at it, while others run the other tests.
test: ## Run all checks and tests
	@$(call phase,env,environment)
	@$(call phase,-j $(JOBS) check lint,check and lint)
	@$(PYTEST) -m "not ranges"

ranges: env ## Run the longest chapters, all at other ends of their ranges, and slow checks
	$(PYTEST) -m ranges tests/press tests/training tests/models tests/site \
	  tests/studies tests/test_readme_picture.py

# Vector instructions decide how sums are rounded: here by no more than SSE.
processors: env ## Run the tests of what is trained as on an old processor
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 \
	  $(PYTEST) -m processor tests/training tests/studies

check: env
	$(RUN) check
	$(BIN)/python -m robustbook.studies check

lint: ruff types import-layers

# Of chapters, whose imports follow the text.
CHAPTER_RULES := --isolated --line-length 78 --select E,F,W --ignore E401,E731,F401,F811

ruff: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/ruff check $(CHAPTER_RULES) book/chapters

types: env
	$(BIN)/mypy

import-layers: env
	$(BIN)/lint-imports --no-logo --no-cache

clean-runtime: env ## Execute all notebooks as in a fresh Colab
	ROBUSTBOOK_CLEAN_RUNTIME=$${ROBUSTBOOK_CLEAN_RUNTIME:-all} \
	  $(BIN)/python -m pytest tests/press/test_clean_runtime.py

fuzz: env ## Certify 100 000 hostile problems; resumes, takes an hour
	$(BIN)/python tests/agreement/fuzz.py --jobs $(JOBS) --rows build/fuzz.csv \
	  --store data/reported/hostile_problems.json

bench: env ## What agreement and average case cost, beside their floors and rivals
	$(BIN)/python tests/benchmarks/agreement_cost.py
	$(BIN)/python tests/benchmarks/average_case_cost.py

clean: ## Remove what `make` made; .venv too
	rm -rf _build $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
