"""docs/observability.md has every metric, path, logger and field, with its type and labels; and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.registry import Collector

from modeaware.controller import about
from modeaware.controller.watched import OPERATIONS
from modeaware.lifecycle.phases import PHASES
from modeaware.metrics import ClientCollector
from modeaware.monitoring.controller_metrics import ControllerCollector
from modeaware.monitoring.pages import CONTACT_STALE_S, LOOP_STALE_S, ControllerPages
from modeaware.monitoring.server import CONNECTION_S, MAX_CONNECTIONS
from tests.support.source_tree import modules
from tests.support.watched import busy_snapshot, record
from tests.unit.test_docs import table

TEXT = (Path(__file__).parents[2] / "docs" / "observability.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "collector"),
    [("controller metric", ControllerCollector(busy_snapshot)), ("client metric", ClientCollector())],
)
def test_metrics(heading: str, collector: Collector) -> None:
    documented = {
        name: (kind, tuple(re.findall(r"`(\w+)`", f"`{labels}`")))
        for name, (kind, labels, _) in table(TEXT, heading).items()
    }
    assert documented == {
        family.name + ("_total" if family.type == "counter" else ""): (family.type, tuple(family._labelnames))
        for family in collector.describe()  # type: ignore[attr-defined] # both have it
    }


def test_closed_sets() -> None:
    def named(metric: str) -> list[str]:
        (line,) = [line for line in TEXT.splitlines() if line.startswith(f"| `{metric}` |")]
        return re.findall(r"`([\w-]+)`", line.split("|")[4])

    assert sorted(named("modeaware_controller_errors_total")) == sorted(OPERATIONS)
    assert named("modeaware_topic_phase") == list(PHASES)


def test_paths_and_limits() -> None:
    pages = ControllerPages(busy_snapshot)
    documented = table(TEXT, "path")
    assert set(documented) == {"/", "/status.json", "/metrics", "/health", "/ready"}
    assert all(pages(path, "") is not None for path in documented)
    assert f"within {LOOP_STALE_S:.0f} s" in documented["/health"][0]
    assert f"within {CONTACT_STALE_S:.0f} s" in documented["/ready"][0]
    assert f"{MAX_CONNECTIONS} connections at most" in TEXT
    assert f"longer than {CONNECTION_S:.0f} s" in TEXT


def test_loggers() -> None:
    used = set()
    for module, path in modules().items():
        for name in re.findall(r"getLogger\(([^)]*)\)", path.read_text(encoding="utf-8")):
            logger = module if name == "__name__" else name.strip('"')
            if logger.startswith("modeaware."):
                used.add(".".join(logger.split(".")[:2]))
    assert set(table(TEXT, "logger")) == used


def test_fields() -> None:
    told = about.about_record(record("orders", 1, {}, 0)) | about.about_controller("c", 1) | {"effect": ""}
    assert set(table(TEXT, "field")) == set(told)
