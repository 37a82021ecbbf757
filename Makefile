# The menu. Every target sets itself up from nothing: tools/setup.sh builds .venv from the lock files.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

BIN := .venv/bin
ARGS ?=
WHAT ?= storage
SECONDS ?= 3600

# Local indexes and wheel folders must not leak into the locks, so pip is asked without its
# configuration. Run on Python 3.11, the oldest supported.
PIP_COMPILE = env -u PIP_FIND_LINKS -u PIP_EXTRA_INDEX_URL PIP_CONFIG_FILE=/dev/null \
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe \
	--strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	$(if $(UPGRADE),--upgrade)

.PHONY: help demo test campaign soak check bench docs lock clean env-base env-demo env-dev wheel

help: ## Show this menu
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: env-demo ## See it work: a year of flights and the weather before each
	@$(BIN)/matwin warm
	@mkdir -p build
	@$(BIN)/matwin demo --output build/demo.html --overwrite $(ARGS)

test: env-dev ## Run the tests (ARGS="-k pool" to pass options to pytest)
	$(if $(ARGS),,$(BIN)/matwin warm)
	$(BIN)/pytest -n 3 --dist loadgroup $(ARGS)

campaign: env-dev ## Run the proofs in their long form and print their table (ARGS="-k kill" for some)
	@mkdir -p build
	HYPOTHESIS_PROFILE=campaign $(BIN)/pytest -n 2 --dist loadgroup -m proof --proof=build/proof.md $(ARGS)

soak: env-dev ## Run one continuous query for an hour, with kills: flat memory, a flat file (SECONDS=300 for less)
	$(BIN)/python tests/soak.py --seconds $(SECONDS)

check: env-dev wheel ## Lint, check the format, and type-check the built wheel
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd build && MYPYPATH=wheel ../$(BIN)/mypy --config-file ../pyproject.toml -p matwin \
		| sed -E 's#^wheel/(matwin/(storage|scheduler|operators|tools)/)#\2/#; s#^wheel/##'

bench: env-base ## Measure (WHAT=storage, schedule, bestmatch, epsilon, window, sql, start, asof, memory, ways, large, epochs, spark, scale, paper-bestmatch, paper-window, paper-semijoin; ARGS="...")
	@$(BIN)/matwin warm >&2
	@$(BIN)/matwin bench $(WHAT) $(ARGS)

docs: env-dev ## Build the documentation site into build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "see build/docs/index.html"

lock: env-dev ## Resolve the lock files anew (UPGRADE=1 to move to newer versions)
	$(PIP_COMPILE) --extra duckdb --extra fast --extra sql --output-file locks/base.txt pyproject.toml locks/build.in
	$(PIP_COMPILE) --extra dev --constraint locks/base.txt --output-file locks/dev.txt \
		pyproject.toml locks/build.in
	$(PIP_COMPILE) --extra demo --extra duckdb --extra fast --constraint locks/dev.txt --output-file locks/demo.txt \
		pyproject.toml locks/build.in

clean: ## Remove everything that make has made
	rm -rf .venv build matwin.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find matwin storage scheduler operators tools tests -name __pycache__ -prune -exec rm -rf {} +

env-base:
	@tools/setup.sh base

env-demo:
	@tools/setup.sh demo

env-dev:
	@tools/setup.sh dev

# The project as its users get it, unpacked in build/wheel. mypy looks there, because it can't
# follow an editable install of mapped folders. build/lib goes first: setuptools would pack
# modules left there that are no longer in the sources.
wheel: env-dev
	@rm -rf build/lib build/bdist.* build/dist build/wheel
	@mkdir -p build
	@$(BIN)/python -m build --wheel --no-isolation --outdir build/dist . >build/wheel.log 2>&1 \
		|| { cat build/wheel.log >&2; exit 1; }
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --no-deps --no-index \
		--target build/wheel build/dist/*.whl
