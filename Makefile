# make demo         the library at work, with nothing but its run-time dependencies
# make test         the tests that need Python alone
# make system       the tests with real peers; PEER=memcached for those of one
# also: slow, audit, lint, types, imports, docs, coverage, mutants, bench, accuracy, clean
# PYTHON=python3.12 which Python the local virtual environment is made with

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when first imported: compiling all of them would double the time. Through a
# path entry, so that another folder named ppw beside the caller does not hide the package.
INSTALL = -m pip install --quiet --no-compile --disable-pip-version-check --no-input \
	--constraint constraints.txt
EDITABLE := --config-settings editable_mode=compat --editable

# Each file is run by one of two processes: every further one would import all of the tests anew.
AT_ONCE := -n 2 --dist loadfile --no-loadscope-reorder

# The documentation has an environment of its own, without the tests' packages.
DOCS := .venv-docs

.PHONY: demo test system slow audit lint types imports docs coverage mutants bench accuracy clean
# Where Python was told to keep no compiled modules, each start would take three times as long.
export PYTHONDONTWRITEBYTECODE =
.NOTPARALLEL:
.DELETE_ON_ERROR:

demo: $(VENV)/.runtime
	@$(BIN)/ppw demo

test: $(VENV)/.test
	$(BIN)/python -m pytest $(AT_ONCE)

# Peers, and the packages that root on Debian is given for them: tests/system.toml.
system: $(VENV)/.system
	$(BIN)/python tests/system.py $(addprefix --peer ,$(PEER))

# What takes minutes: clusters, long fuzzing, 2000 examples a property, accuracy on a quiet machine.
slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow
	HYPOTHESIS_PROFILE=slow $(BIN)/python -m pytest $(AT_ONCE)

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

# Calls and texts that can be a weakness, and the workflows: no finding without a reason. Half a
# minute.
audit: $(VENV)/.dev
	@$(BIN)/python $(INSTALL) 'bandit>=1.9' 'zizmor>=1.32'
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive ppw measurements fitting ppw_errors
	$(BIN)/zizmor --offline --quiet .github/workflows examples/performance_gate.yml

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

# Into build/site, without a network; a warning is an error. Then the tests of what the pages say.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(DOCS)/.docs
	$(DOCS)/bin/python -m mkdocs build --strict
	$(DOCS)/bin/python -m pytest $(AT_ONCE) tests/docs -o addopts=--strict-markers

# The branches that the tests reach; fails where fitting or ppw is under 95 %. Loops that are
# compiled cannot be traced: the tests of fitting run once more as plain Python.
coverage: $(VENV)/.dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(AT_ONCE)
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest $(AT_ONCE) \
		-W "ignore:overflow:RuntimeWarning" tests/fitting --ignore tests/fitting/test_compiled.py
	$(BIN)/coverage run tests/system.py
	$(BIN)/coverage combine --quiet
	@mkdir -p build
	$(BIN)/coverage json --quiet -o build/coverage.json
	$(BIN)/python benchmarks/branches.py build/coverage.json

# Small faults put into the sources, and the share that the tests find; goes on where it stopped.
mutants: $(VENV)/.dev
	@$(BIN)/python $(INSTALL) 'cosmic-ray>=8.7'
	$(BIN)/python benchmarks/mutants.py

# A few minutes; writes docs/generated/speed.md. On a quiet machine.
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/speed.py --write docs/generated

# Half a minute; writes docs/generated/accuracy.md and its plots, from data beside the sources or in
# PPW_DATA_DIR.
accuracy: $(VENV)/.dev
	$(BIN)/python benchmarks/accuracy.py --write docs/generated

clean:
	rm -rf $(VENV) $(DOCS) build dist *.egg-info .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		.import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.runtime: EXTRA = [plots]
$(VENV)/.test: EXTRA = [test]
$(VENV)/.system: EXTRA = [system]
$(VENV)/.dev: EXTRA = [dev]
$(DOCS)/.docs: EXTRA = [docs]

$(VENV)/.runtime $(VENV)/.test $(VENV)/.system $(VENV)/.dev: $(VENV)/.made
$(DOCS)/.docs: $(DOCS)/.made
$(VENV)/.runtime $(VENV)/.test $(VENV)/.system $(VENV)/.dev $(DOCS)/.docs: pyproject.toml constraints.txt
	@echo "Installing ppw$(EXTRA) into $(@D): up to a minute, once"
	@$(@D)/bin/python $(INSTALL) $(EDITABLE) '.$(EXTRA)'
	@touch $@

# A virtual environment holds absolute paths: one that was moved, or that lost its Python, is made
# anew.
.PHONY: $(shell for v in $(VENV) $(DOCS); do \
	$$v/bin/python -c pass 2>/dev/null && [ "$$(cat $$v/.made)" = "$$(pwd -P)" ] || echo $$v/.made; done)

$(VENV)/.made $(DOCS)/.made:
	@command -v $(PYTHON) >/dev/null || { \
		echo "$(PYTHON): not found; install Python 3.11 or newer, or name one: make PYTHON=..." >&2; \
		exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "ppw needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1);" \
			"name another: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments;" \
			"on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D)
	@printf '%s\n' '$(CURDIR)' >$@
