"""A kafka-python consumer of ours in a group, on librdkafka's mock broker: what it shows, commits and reads where its
topic is replaced. What is decided has tests of its own (``test_member.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.structs import OffsetAndMetadata, TopicPartition

from modeaware.kafka_python import KafkaConsumer
from modeaware.notes import READ
from modeaware.testing import MockKafka
from modeaware.topic_view import Moved
from tests.support.fake_views import FakeViews, modes_of, switch
from tests.support.mock_topics import COUNT, NEW, OLD, RECORDS, mock_with_records
from tests.support.waiting import eventually


@pytest.fixture
def mock() -> Iterator[MockKafka]:
    with mock_with_records() as made:
        yield made


class Application(ConsumerRebalanceListener):  # type: ignore[misc,unused-ignore]  # untyped
    """Commits by kafka-python's timer, or only when it is revoked."""

    def __init__(self, mock: MockKafka, strategy: Any, *, auto_commit: bool) -> None:
        self.shown: list[tuple[str, set[str]]] = []
        self.records: dict[str, set[tuple[int, int]]] = {OLD: set(), NEW: set()}
        self.uncommitted: dict[TopicPartition, OffsetAndMetadata] = {}
        self._auto_commit = auto_commit
        self.consumer = KafkaConsumer(
            bootstrap_servers=mock.bootstrap_servers,
            api_version=(2, 0),
            group_id="g",
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,  # so long the mock broker waits for members that join again
            heartbeat_interval_ms=300,
            fetch_max_wait_ms=50,
            enable_auto_commit=auto_commit,
            partition_assignment_strategy=[strategy],
        )
        self.consumer.subscribe([OLD], listener=self)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.shown.append(("assigned", {partition.topic for partition in assigned}))

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.shown.append(("revoked", {partition.topic for partition in revoked}))
        if self.uncommitted:
            self.consumer.commit_async(dict(self.uncommitted))
            self.uncommitted.clear()

    def until(self, condition: Any) -> None:
        def holds() -> bool:
            for partition, records in self.consumer.poll(50).items():
                self.records[partition.topic] |= {(record.partition, record.offset) for record in records}
                if not self._auto_commit:
                    self.uncommitted[partition] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
            return bool(condition())

        eventually(holds, 60, interval_s=0.0)

    def noted(self) -> set[tuple[int, str]]:
        found = [self.consumer.committed(TopicPartition(OLD, p), metadata=True) for p in range(COUNT)]
        return {(at.offset, at.metadata.rstrip("\0")) for at in found if at is not None}


@pytest.mark.parametrize(
    ("strategy", "auto_commit"),
    [
        (RangePartitionAssignor, True),
        (RangePartitionAssignor, False),
        (CooperativeStickyAssignor, True),
        (CooperativeStickyAssignor, False),
    ],
    ids=[
        "range",
        "range, commits when it is revoked",
        "cooperative-sticky",
        "cooperative-sticky, commits when it is revoked",
    ],
)
def test_new_topic_is_read_once_the_group_has_an_open_gate(
    mock: MockKafka, views: FakeViews, strategy: Any, auto_commit: bool
) -> None:
    views.set(OLD, modes_of(COUNT, COUNT))
    application = Application(mock, strategy, auto_commit=auto_commit)
    with closing(application.consumer):
        application.until(lambda: len(application.records[OLD]) == COUNT * RECORDS)
        ends = dict.fromkeys(range(COUNT), RECORDS)
        view = switch(views, OLD, NEW, COUNT, groups=frozenset({"g"}), read_up_to=ends)
        application.until(lambda: application.noted() == {(RECORDS, READ)})
        assert application.records[NEW] == set(), "its gate is closed"
        assert all(NEW not in topics for _, topics in application.shown)
        assert view.replaced_by is not None
        moved = replace(view.replaced_by, moved=Moved(groups=frozenset({"g"}), version=(1, 1)))
        views.put(replace(view, version=(1, view.epoch + 1), replaced_by=moved))
        application.until(lambda: len(application.records[NEW]) == COUNT * RECORDS)
        assert len(application.records[OLD]) == COUNT * RECORDS
