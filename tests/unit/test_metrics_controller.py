"""A controller's metrics: what is exported, by Prometheus' rules, and as the documentation has it."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from modeaware.controller.watched import Snapshot
from modeaware.lifecycle import reasons
from modeaware.monitoring.controller_metrics import ControllerCollector
from modeaware.monitoring.pages import ControllerPages
from tests.support.watched import busy_snapshot, standby_snapshot

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
    assert value("topic_look_age_seconds", topic="orders") == 4
    assert value("topic_stragglers_total", topic="orders") == 1
    assert value("topic_blocked_seconds", topic="payments", reason="group-lag") is None


def test_a_standby_tells_no_topics() -> None:
    """Or sums over all controllers would count each twice."""
    families = list(registry_of(standby_snapshot()).collect())
    assert [f.name for f in families if f.name.startswith("modeaware_topic_") and f.samples] == []
    assert registry_of(standby_snapshot()).get_sample_value("modeaware_controller_active") == 0
    assert registry_of(standby_snapshot()).get_sample_value("modeaware_controller_epoch") == 3


def test_labels_are_topics_and_closed_sets() -> None:
    families = registry_of(busy_snapshot(NOW_MS)).collect()
    labels = [label for family in families for sample in family.samples for label in sample.labels.items()]
    assert {value for name, value in labels if name == "reason"} <= {*reasons.CODES, "other"}
    assert {value for name, value in labels if name == "topic"} == {"clicks", "grown", "orders", "payments"}
    assert {name for name, _ in labels} == {"reason", "phase", "mode", "replica_state", "operation", "topic"}


@pytest.mark.parametrize("accept", ["", "text/plain; version=1.0.0", "text/plain; version=rubbish"])
def test_what_is_scraped_can_be_read(accept: str) -> None:
    answer = ControllerPages(busy_snapshot)("/metrics", accept)
    assert answer is not None
    assert answer.content_type.startswith("text/plain")
    names = {family.name for family in text_string_to_metric_families(answer.body.decode())}
    assert {"modeaware_topic_partitions", "process_resident_memory_bytes"} <= names
