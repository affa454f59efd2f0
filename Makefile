# make test: from nothing to green (four workers: most tests wait); make lint; make e2e: real agents, real browser.
# make soak: a hook waits SECONDS (two hours) over 50 cut connections; memory and CPU.
# make fuzz: samples mutated for SECONDS (ten minutes).
# make coverage: what of a4p.py the tests run, in the processes of hooks and commands, too. A few
# tests fail by being measured: those that look at what a hook loads.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Plugins by name: found by themselves, each module of theirs is searched for assertions to rewrite.
FAST = -q -n 4 --timeout 120 --disable-plugin-autoload -p xdist -p pytest_timeout tests --ignore=tests/e2e --ignore=tests/bench.py
RULES = --line-length 100 --target-version py39 --select E,F,W,B,I,UP,C4,SIM \
        --per-file-ignores 'tests/*:E501,tests/*:SIM117' --config 'src=[".", "tests", "tests/e2e"]'

.PHONY: test lint e2e bench soak fuzz coverage clean

test: $(VENV)/test
	$(BIN)/python -m pytest $(FAST) --doctest-modules a4p.py

lint: $(VENV)/lint
	$(BIN)/ruff check $(RULES) a4p.py tests
	$(BIN)/mypy --strict --python-version 3.10 --cache-dir $(VENV)/mypy a4p.py

e2e: $(VENV)/test $(VENV)/e2e
	sh tests/e2e/install.sh
	$(BIN)/python -m pytest -q tests/e2e

bench: $(VENV)/test
	$(BIN)/python tests/bench.py

soak: $(VENV)/test
	$(BIN)/python tests/soak.py $(or $(SECONDS),7200)

fuzz: $(VENV)/test
	$(BIN)/python tests/fuzz.py $(or $(SECONDS),600)

coverage: $(VENV)/test
	$(BIN)/python -m pip install -q --disable-pip-version-check 'coverage>=7.10'
	-A4P_PYTHON=$(abspath $(BIN))/python COVERAGE_RCFILE=$(abspath tests/coverage.ini) $(BIN)/python -m coverage run \
		-m pytest $(FAST)
	$(BIN)/python -m coverage combine -q --rcfile=tests/coverage.ini
	$(BIN)/python -m coverage report --rcfile=tests/coverage.ini

$(VENV)/python:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/test: $(VENV)/python Makefile
	$(BIN)/python -m pip install -q --disable-pip-version-check --only-binary zxing-cpp \
		pytest pytest-timeout pytest-xdist hypothesis zxing-cpp 'mcp>=2.3; python_version >= "3.10"'
	@touch $@

$(VENV)/lint: $(VENV)/python Makefile
	$(BIN)/python -m pip install -q --disable-pip-version-check ruff mypy
	@touch $@

$(VENV)/e2e: $(VENV)/python Makefile
	$(BIN)/python -m pip install -q --disable-pip-version-check playwright
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .hypothesis .ruff_cache
