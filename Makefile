# Everything runs in .venv, which is made from the lock file: no root, no Java, nothing outside this folder.
# PYTHON=/path/to/python3 chooses an interpreter.

PYTHON ?= $(firstword $(foreach candidate,python3.11 python3.12 python3.13 python3,\
	$(shell $(candidate) -c 'import sys, ensurepip; assert sys.version_info >= (3, 11); print("$(candidate)")' 2>/dev/null)))
BIN := .venv/bin
VENV := .venv/.complete

.DEFAULT_GOAL := help
.PHONY: help demo test test-long lint typecheck format picture bench-matching bench-broker bench-pipeline lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV) ## see it work
	$(BIN)/catchment demo

test: lint typecheck ## all checks and tests, as in CI
	$(BIN)/pytest -n 2 --dist worksteal

test-long: $(VENV) ## the thousand seeds, the fuzzing and the soak
	$(BIN)/pytest -m long

lint: $(VENV) ## ruff: rules and layout
	$(BIN)/ruff check
	$(BIN)/ruff format --check

typecheck: $(VENV) ## mypy, strict
	$(BIN)/mypy

format: $(VENV) ## let ruff fix and lay out the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

picture: $(VENV) ## draw docs/overlay.png anew, from the demo
	$(BIN)/catchment demo --output build/picture
	cp build/picture/overlay.png docs/overlay.png

bench-matching: $(VENV) ## events a second through the matcher
	$(BIN)/catchment bench matching

bench-broker: $(VENV) ## CPU time of one broker for an event
	$(BIN)/catchment bench broker

bench-pipeline: $(VENV) ## the pipeline on Spark, next to its peers
	$(BIN)/catchment bench pipeline

# hatchling, the build backend, is in the lock too: the project itself is installed without asking the index.
$(VENV): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { \
		echo "make: no Python 3.11 or newer with venv on PATH; install one, or: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --use-pep517 --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# pip-tools lives in a venv of its own, as a lock that cannot be installed must still be mendable.
lock: ## resolve pyproject.toml into requirements.lock anew
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet --disable-pip-version-check pip-tools
	CUSTOM_COMPILE_COMMAND="make lock" .venv-lock/bin/pip-compile --quiet --upgrade --generate-hashes --strip-extras \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
		--extra test --extra dev --output-file requirements.lock pyproject.toml

clean: ## remove the venv, caches and build output
	rm -rf .venv .venv-lock .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist spark-warehouse
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
