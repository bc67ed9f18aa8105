"""Metrics of clients: what is exported of views and clients, and that nothing but the collector ever computes it."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from prometheus_client import CollectorRegistry, generate_latest

from modeaware import metrics
from modeaware.clients import tally
from modeaware.confluent.consumer import Consumer
from modeaware.confluent.errors import RetiredPartitionChosen
from modeaware.errors import ResizeWarning
from modeaware.metrics import register
from modeaware.modes import PartitionMode
from modeaware.views.registry import Source
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.fake_sources import Acquire
from tests.support.fake_views import FakeViews, modes_of
from tests.support.modelog import topic_record
from tests.support.offline import CONF, MOVED_12_TO_5, Makes


class Exported:
    """What the collector exports, and by how much its counters have risen since this was made."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        register(self.registry)
        assert register(self.registry) is register(self.registry), "one collector for a registry"
        self._before = self._counts()

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"modeaware_client_{name}", labels)

    def _counts(self) -> Counter[str]:
        """Of all that is counted; each is exported."""
        counts: Counter[str] = Counter()
        for name in tally.NAMES:
            count = self.value(f"{name.replace('-', '_')}_total")
            assert count is not None, name
            counts[name] = int(count)
        return counts

    def risen(self) -> dict[str, int]:
        return self._counts() - self._before


@pytest.fixture
def exported() -> Exported:
    return Exported()


def test_what_a_process_knows_of_the_modes(acquire: Acquire, endpoint: FakeEndpoint, exported: Exported) -> None:
    endpoint.views["orders"] = topic_record("orders", 7).view()
    views = acquire()
    acquire()
    assert views.wait_ready(30)
    at = {"cluster": endpoint.address, "mode_log": "__partition_modes"}
    assert exported.value("topic_epoch", **at, topic="orders") == 7
    assert exported.value("topic_partitions", **at, topic="orders", mode="ReadWrite") == 4
    assert exported.value("topic_partitions", **at, topic="orders", mode="ReadOnly") == 8
    assert exported.value("view_ready", **at) == 1
    assert exported.value("view_stale", **at) == 0
    assert exported.value("view_clients", **at) == 2
    assert exported.value("view_refresh_failures_total", **at) == 0
    assert 0 <= (exported.value("view_age_seconds", **at) or 0) < 300


def test_sources_that_no_label_tells_apart_are_one_sample(monkeypatch: pytest.MonkeyPatch, exported: Exported) -> None:
    """Two users of one cluster, say. Prometheus takes one sample a series; it must be the one that tells of trouble."""
    good = {"ready": True, "stale": False, "view_age_ms": 1_000, "refresh_failures": 1}
    bad = {"ready": False, "stale": True, "view_age_ms": 9_000, "refresh_failures": 4}
    found = [
        Source("c", "log", clients, stats, {"orders": topic_record("orders", epoch).view()})
        for clients, stats, epoch in ((1, good, 8), (2, bad, 7))
    ]
    monkeypatch.setattr(metrics, "sources", lambda: found)
    names = ("view_ready", "view_stale", "view_age_seconds", "view_clients", "view_refresh_failures_total")
    assert [exported.value(name, cluster="c", mode_log="log") for name in names] == [0, 1, 9, 3, 5]
    assert exported.value("topic_epoch", cluster="c", mode_log="log", topic="orders") == 7
    monkeypatch.setattr(metrics, "sources", lambda: [replace(found[0], stats={**good, "view_age_ms": -1})])
    assert exported.value("view_age_seconds", cluster="c", mode_log="log") is None, "no view has come yet"
    monkeypatch.setattr(metrics, "sources", lambda: found[::-1])
    assert exported.value("topic_epoch", cluster="c", mode_log="log", topic="orders") == 7
    lines = [line.partition(" ")[0] for line in generate_latest(exported.registry).decode().splitlines()]
    series = [line for line in lines if line.startswith("modeaware_")]
    assert len(series) == len(set(series))


def test_sends_that_are_refused_and_resizes_are_counted(views: FakeViews, exported: Exported) -> None:
    views.set("orders", modes_of(12, 12))
    with closing(Makes()) as make:
        producer = make("warn")
        views.set("orders", modes_of(12, 5), previous_count=12)
        for partition in (11, 5):
            with pytest.raises(RetiredPartitionChosen):
                producer.produce("orders", b"v", partition=partition)
        producer.produce("orders", b"v", partition=3)
        with pytest.warns(ResizeWarning):
            producer.produce("orders", b"v", MOVED_12_TO_5[0])
    assert exported.risen() == {tally.SENDS_REFUSED: 2, tally.RESIZE_WARNINGS: 1}


def test_partitions_left_out_and_taken_up_are_counted(views: FakeViews, exported: Exported) -> None:
    views.set("t", modes_of(4, 2, PartitionMode.NONE))
    consumer = Consumer({**CONF, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(4)])
    assert exported.risen() == {tally.PARTITIONS_LEFT_OUT: 2}
    views.set("t", modes_of(4, 4))
    consumer.poll(0)
    assert exported.risen() == {tally.PARTITIONS_LEFT_OUT: 2, tally.PARTITIONS_TAKEN_UP: 2}
    consumer.close()
