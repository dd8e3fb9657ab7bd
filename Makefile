# make demo         the library at work, with nothing but its run-time dependencies
# make test         the tests
# also: slow, lint, types, imports, docs, coverage, mutants, bench, accuracy, clean
# PYTHON=python3.12 which Python the local virtual environment is made with

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when first imported: compiling all of them would double the time.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check \
	--no-input --constraint constraints.txt

# Through a path entry: another folder named ppw beside the caller does not hide the package then.
EDITABLE := --config-settings editable_mode=compat --editable

# Two at once, a file's tests by one; in the order of tests/conftest.py. Three are done sooner, as
# many tests wait for programs and clocks, and are more often held up by each other.
AT_ONCE := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test slow lint types imports docs coverage mutants bench accuracy clean
# Where Python was told to keep no compiled modules, each start would take three times as long.
export PYTHONDONTWRITEBYTECODE =
.NOTPARALLEL:
.DELETE_ON_ERROR:

demo: $(VENV)/.runtime
	@$(BIN)/ppw demo

# Without it scikit-learn's estimator checks skip one, on input by the array API.
test: export SCIPY_ARRAY_API = 1
test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not slow" $(AT_ONCE)

# What takes minutes: clusters, long fuzzing, accuracy on a quiet machine.
slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

# Into build/site, without a network; a warning is an error.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/.dev
	$(BIN)/python -m mkdocs build --strict

# Loops that are compiled cannot be traced: their tests run once more as plain Python.
LOOPS := $(wildcard $(foreach name,arrival_character burstiness caches chain decks defragmentation \
	device_model gap_draws hash_table interarrival lookups lru marks octaves random_numbers recency \
	request_kinds reuse run_lengths sampled_reuse side_by_side splits state_diagram trace_survey \
	transition_counts walk,tests/fitting/test_$(name)*.py)) tests/ppw/test_trace_model.py \
	tests/ppw/test_fleet_telemetry.py::TestTwoSamplesByHand

# The branches that the tests reach; fails where fitting or ppw is under 95 %.
coverage: export SCIPY_ARRAY_API = 1
coverage: $(VENV)/.dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m "not slow" $(AT_ONCE)
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest -m "not slow" $(AT_ONCE) \
		-W "ignore:overflow:RuntimeWarning" $(LOOPS)
	$(BIN)/coverage combine --quiet
	@mkdir -p build
	$(BIN)/coverage json --quiet -o build/coverage.json
	$(BIN)/python benchmarks/branches.py build/coverage.json

# Small faults put into fitting, and the share that its tests find; goes on where it was stopped.
mutants: $(VENV)/.dev
	@$(INSTALL) 'cosmic-ray>=8.7'
	$(BIN)/python benchmarks/mutants.py

# A few minutes; writes docs/generated/speed.md. On a quiet machine.
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/speed.py --write docs/generated

# Half a minute; writes docs/generated/accuracy.md and its plots, from data beside the sources or in
# PPW_DATA_DIR.
accuracy: $(VENV)/.dev
	$(BIN)/python benchmarks/accuracy.py --write docs/generated

clean:
	rm -rf $(VENV) build dist *.egg-info .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		.import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.runtime: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing ppw into $(VENV): half a minute, once"
	@$(INSTALL) $(EDITABLE) .
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing ppw and its developers' tools into $(VENV): a minute, once"
	@$(INSTALL) $(EDITABLE) '.[dev]'
	@touch $@ $(VENV)/.runtime

# A virtual environment holds absolute paths: one that was moved, or that lost its Python, is made
# anew.
ifneq ($(shell $(BIN)/python -c pass 2>/dev/null && cat $(VENV)/.made),$(CURDIR))
.PHONY: $(VENV)/.made
endif

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { \
		echo "$(PYTHON): not found; install Python 3.11 or newer, or name one: make PYTHON=..." >&2; \
		exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "ppw needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1);" \
			"name another: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments;" \
			"on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@printf '%s\n' '$(CURDIR)' >$@
