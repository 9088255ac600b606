# The two commands of the README are `make test` and `make train`. Each creates .venv when it is missing.
#   PYTHON   the interpreter that makes .venv (3.11 or later)
#   TORCH    what to install as torch; the range that works is in pyproject.toml
#   WORKERS  processes of the test run

PYTHON ?= python3
TORCH ?= torch==2.13.0
WORKERS ?= 2
STEPS ?= 20
JSON ?= out.json
AUDIT ?= out
REPORT ?= out
TRIAL ?= trial.json

VENV := .venv
BIN := $(VENV)/bin
FOLDERS := bridge coverage benchmarks reports cli

.PHONY: test test-slow train audit bench trial upstream readme picture lint types format clean

test: $(VENV)/ready-dev
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

test-slow: $(VENV)/ready-dev
	$(BIN)/python -m pytest -n $(WORKERS) -m slow $(ARGS)

train: $(VENV)/ready-zoo
	$(BIN)/relaxgrad train --all --steps $(STEPS) --json $(JSON) $(ARGS)

# Every model of the zoo against the five blockers (about an hour on two cores). It goes on where it was stopped.
audit: $(VENV)/ready-zoo
	$(BIN)/relaxgrad audit --zoo all -o $(AUDIT) --jobs $(WORKERS) --resume $(ARGS)

# Step times of twelve models beside Inductor and eager, on a machine that is left alone (about 40 minutes).
bench: $(VENV)/ready-zoo
	$(BIN)/relaxgrad bench --zoo perf --against inductor,eager --profile --json $(JSON) $(ARGS)

# The planted-fault study of validation, with its verdicts on eager, Inductor and relaxgrad too (about 40 minutes).
trial: $(VENV)/ready-zoo
	$(BIN)/python -m relaxgrad.coverage.trial.run $(TRIAL)
	$(BIN)/python -m relaxgrad.reports.numbers_page $(TRIAL)

# The known bugs of TVM, a script each, run anew (about 6 minutes).
upstream: $(VENV)/ready-dev
	$(BIN)/python -m relaxgrad.reports.upstream_page --store coverage/upstream/found.json

# The tables of the README, docs/models.md and docs/measured.md from docs/results/, and docs/tutorial.md. To take in a new measurement:
# `python -m relaxgrad.reports.models_page DIR`, `python -m relaxgrad.reports.bench_page RUN.json [NAME]`, then this.
readme: $(VENV)/ready-dev
	$(BIN)/python -m relaxgrad.reports.models_page
	$(BIN)/python -m relaxgrad.reports.bench_page
	$(BIN)/python -m relaxgrad.reports.onnx_page
	$(BIN)/python -m relaxgrad.reports.cuda_page
	$(BIN)/python -m relaxgrad.reports.numbers_page
	$(BIN)/python -m relaxgrad.reports.schema_page
	$(BIN)/python -m relaxgrad.reports.architecture_page
	$(BIN)/python -m relaxgrad.reports.tutorial_page
	$(BIN)/python -m relaxgrad.reports.readme

# The picture of the README, of a report: first `relaxgrad report -o $(REPORT)`. Needs a Chromium on the PATH.
picture: $(VENV)/ready-dev
	$(BIN)/python -m relaxgrad.reports.picture $(REPORT)/report.html -o docs/pictures/report.png

lint: $(VENV)/ready-dev
	$(BIN)/ruff check .

format: $(VENV)/ready-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# mypy finds packages by their path, and our folders get the prefix `relaxgrad.` only when installed: lay links that
# have it.
types: $(VENV)/ready-dev
	mkdir -p build/types/relaxgrad
	for folder in $(FOLDERS); do ln -sfn "$(CURDIR)/$$folder" build/types/relaxgrad/$$folder; done
	MYPYPATH=build/types $(BIN)/mypy -p relaxgrad

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache

# torch first and alone: pip would otherwise take the newest release in the range, and on Linux its large CUDA build
# where an index offers it beside a CPU one. The stamps make the second run quick.
$(VENV)/ready-torch: Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "relaxgrad needs Python 3.11 or later: make PYTHON=python3.11")'
	$(BIN)/pip install -qq --upgrade "setuptools>=77" "$(TORCH)"
	touch $@

$(VENV)/ready-zoo: $(VENV)/ready-torch pyproject.toml
	$(BIN)/pip install -qq -e ".[cli,zoo]"
	touch $@

$(VENV)/ready-dev: $(VENV)/ready-torch pyproject.toml
	$(BIN)/pip install -qq -e ".[dev]"
	touch $@
