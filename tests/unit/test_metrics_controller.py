"""A controller's metrics: what is exported, by Prometheus' rules, and that docs/observability.md has it all."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from modeaware.controller.status import (
    CONTACT_STALE_S,
    LOOP_STALE_S,
    OPERATIONS,
    Snapshot,
    about_controller,
    about_record,
)
from modeaware.lifecycle import reasons
from modeaware.lifecycle.state import PHASES
from modeaware.metrics import ClientCollector
from modeaware.monitoring.controller_metrics import ControllerCollector
from modeaware.monitoring.pages import ControllerPages
from modeaware.monitoring.server import CONNECTION_S, MAX_CONNECTIONS
from tests.support.promql import exported
from tests.support.source_tree import modules
from tests.support.watched import busy_snapshot, record, standby_snapshot
from tests.unit.test_docs import read, table

NOW_MS = 1_700_000_000_000


def registry_of(snapshot: Snapshot) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(ControllerCollector(lambda: snapshot))
    return registry


def test_what_an_active_controller_tells() -> None:
    registry = registry_of(busy_snapshot(NOW_MS))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"modeaware_{name}", labels)

    assert value("controller_active") == value("controller_ready") == value("controller_takeovers_total") == 1
    assert value("controller_epoch") == 3
    assert value("controller_errors_total", operation="check") == 3
    assert value("controller_errors_total", operation="DeleteRecords") == 0
    ineligible = "ReplicaDeletionIneligible"
    assert value("topic_partitions", topic="orders", mode="ReadOnly", replica_state=ineligible) == 5
    assert value("topic_partitions", topic="orders", mode="ReadWrite", replica_state="OnlineReplica") == 4
    assert value("topic_phase", topic="orders", phase="seal") == 1
    assert value("topic_phase", topic="orders", phase="done") == 0
    assert value("topic_blocked_seconds", topic="orders", reason="group-lag") == 3000
    assert value("topic_unread_offsets", topic="orders") == 240
    assert value("topic_check_age_seconds", topic="orders") == 4
    assert value("topic_stragglers_total", topic="orders") == 1
    assert value("topic_blocked_seconds", topic="payments", reason="group-lag") is None


def test_a_standby_tells_no_topics() -> None:
    """Or sums over all controllers would count each twice."""
    families = list(registry_of(standby_snapshot()).collect())
    assert [f.name for f in families if f.name.startswith("modeaware_topic_") and f.samples] == []
    assert registry_of(standby_snapshot()).get_sample_value("modeaware_controller_active") == 0
    assert registry_of(standby_snapshot()).get_sample_value("modeaware_controller_epoch") == 3
    leaderless = registry_of(replace(standby_snapshot(), leaderless_s=11.0))
    assert leaderless.get_sample_value("modeaware_controller_leaderless_seconds") == 11


def test_labels_are_topics_and_closed_sets() -> None:
    families = registry_of(busy_snapshot(NOW_MS)).collect()
    labels = [label for family in families for sample in family.samples for label in sample.labels.items()]
    assert {value for name, value in labels if name == "reason"} <= {*reasons.CODES, "other"}
    assert {value for name, value in labels if name == "topic"} == {"clicks", "grown", "orders", "payments"}
    assert {name for name, _ in labels} == {"reason", "phase", "mode", "replica_state", "operation", "topic"}


@pytest.mark.parametrize("accept", ["", "text/plain; version=1.0.0", "text/plain; version=rubbish"])
def test_what_is_scraped_can_be_read(accept: str) -> None:
    answer = ControllerPages(busy_snapshot)("/metrics", accept)
    assert answer.content_type.startswith("text/plain")
    names = {family.name for family in text_string_to_metric_families(answer.body.decode())}
    assert {"modeaware_topic_partitions", "process_resident_memory_bytes"} <= names


# docs/observability.md has every metric, path, logger and field, with its type and labels; and nothing else.

TEXT = read("docs/observability.md")


@pytest.mark.parametrize(
    ("heading", "collector"),
    [("controller metric", ControllerCollector(busy_snapshot)), ("client metric", ClientCollector())],
)
def test_metrics(heading: str, collector: ControllerCollector | ClientCollector) -> None:
    documented = {
        name: (kind, tuple(re.findall(r"`(\w+)`", f"`{labels}`")))
        for name, (kind, labels, _) in table(TEXT, heading).items()
    }
    assert documented == exported(collector)


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
        for name in re.findall(r"get_?[lL]ogger\(([^)]*)\)", path.read_text(encoding="utf-8")):
            logger = module if name == "__name__" else name.strip('"')
            if logger.startswith("modeaware."):
                used.add(".".join(logger.split(".")[:2]))
    assert set(table(TEXT, "logger")) == used


def test_fields() -> None:
    told = about_record(record("orders", 1, {}, 0)) | about_controller("c", 1) | {"effect": ""}
    assert set(table(TEXT, "field")) == set(told)
