"""A confluent_kafka consumer of ours as a member of a group, on librdkafka's mock broker: what is decided has tests of
its own (``test_member.py``); this is what librdkafka makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

import modeaware
from modeaware.modes import PartitionMode
from modeaware.notes import GIVEN, OPENED, READ, Note, kind_of
from modeaware.testing import MockKafka
from modeaware.topic_view import Moved
from tests.support.fake_views import FakeViews, modes_of, switch
from tests.support.mock_topics import COUNT, NEW, OLD, RECORDS, mock_with_records
from tests.support.waiting import eventually

ENDS = dict.fromkeys(range(COUNT), RECORDS)
PROTOCOLS = [{"partition.assignment.strategy": name} for name in ("range", "cooperative-sticky")]
DROPPING = [
    {"partition.assignment.strategy": name, "enable.auto.offset.store": stores}
    for name in ("roundrobin", "cooperative-sticky")
    for stores in (True, False)
]


@pytest.fixture
def mock() -> Iterator[MockKafka]:
    with mock_with_records() as made:
        yield made


class Application:
    """One that commits as ``commits`` says: by the library, each record, only when it is revoked, or never. Or it drops
    its records when it is revoked."""

    def __init__(self, mock: MockKafka, views: FakeViews, commits: str, **settings: Any) -> None:
        self.views, self.commits = views, commits
        self.calls: list[tuple[str, set[str]]] = []
        self.records: dict[str, set[tuple[int, int]]] = {OLD: set(), NEW: set()}
        self.uncommitted: dict[tuple[str, int], int] = {}
        self.handled: dict[int, int] = {}  # what it has committed of the old topic, if it drops the rest
        self.results: list[tuple[object, set[Note]]] = []  # of asynchronous and automatic commits
        self.when_assigned: Callable[[], None] = lambda: None
        self.stores = not settings.get("enable.auto.offset.store", True)
        self.consumer = modeaware.Consumer(
            {
                "bootstrap.servers": mock.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "session.timeout.ms": 6_000,  # so long the mock broker waits for members that join again
                "heartbeat.interval.ms": 300,
                "enable.auto.commit": commits == "automatically",
                "on_commit": self._committed,
                **settings,
            }
        )
        views.set(OLD, modes_of(COUNT, COUNT))
        self.consumer.subscribe([OLD], on_assign=self._assigned, on_revoke=self._revoked)

    def _committed(self, error: object, partitions: list[TopicPartition]) -> None:
        self.results.append((error, {kind_of(p.metadata) for p in partitions}))

    def _assigned(self, _: object, partitions: list[TopicPartition]) -> None:
        self.calls.append(("assigned", {p.topic for p in partitions}))
        self.when_assigned()

    def _revoked(self, _: object, partitions: list[TopicPartition]) -> None:
        self.calls.append(("revoked", {p.topic for p in partitions}))
        if self.commits == "drops when revoked":
            gone = {p.partition for p in partitions}
            self.records[OLD] = {
                (partition, offset)
                for partition, offset in self.records[OLD]
                if partition not in gone or offset < self.handled.get(partition, 0)
            }
        if self.uncommitted:
            offsets = [TopicPartition(*key, at) for key, at in self.uncommitted.items()]
            self.consumer.commit(offsets=offsets, asynchronous=False)
            self.uncommitted.clear()

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is None:
            return
        assert message.error() is None, message.error()
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        self.records[topic].add((partition, offset))
        if self.stores:
            self.consumer.store_offsets(message)
        if self.commits == "each":
            self.consumer.commit(message, asynchronous=False)
        elif self.commits == "when revoked":
            self.uncommitted[topic, partition] = offset + 1

    def until(self, condition: Any) -> None:
        def holds() -> bool:
            self.poll()
            return bool(condition())

        eventually(holds, 60, interval_s=0.0)

    def committed(self) -> dict[int, int]:
        found = self.consumer._membership._non_member.committed([TopicPartition(OLD, p) for p in range(COUNT)], 5)
        return {p.partition: p.offset for p in found if p.offset >= 0}

    def noted(self, topic: str = OLD) -> set[tuple[int, Note]]:
        found = self.consumer._membership._non_member.committed([TopicPartition(topic, p) for p in range(COUNT)], 5)
        return {(p.offset, kind_of(p.metadata)) for p in found}

    def open_gate(self) -> None:
        view = self.views.view(OLD)
        assert view.replaced_by is not None
        new_topic = replace(view.replaced_by, moved=Moved(groups=frozenset({"g"}), version=(1, 1)))
        self.views.put(replace(view, version=(1, view.epoch + 1), replaced_by=new_topic))


@pytest.fixture
def application(request: pytest.FixtureRequest, mock: MockKafka, views: FakeViews) -> Iterator[Application]:
    commits, protocol = request.param
    made = Application(mock, views, commits, **protocol)
    yield made
    made.consumer.close()


@pytest.mark.parametrize(
    "application", [(how, each) for how in ("automatically", "each") for each in PROTOCOLS], indirect=True
)
def test_new_topic_is_read_once_the_group_has_an_open_gate(application: Application, views: FakeViews) -> None:
    application.until(lambda: len(application.records[OLD]) == COUNT * RECORDS)
    switch(views, OLD, NEW, COUNT, groups=frozenset({"g"}), read_up_to=ENDS)
    application.until(lambda: application.noted() == {(RECORDS, kind_of(READ))})
    assert application.records[NEW] == set(), "its gate is closed"
    assert all(NEW not in topics for _, topics in application.calls)
    application.open_gate()
    application.until(lambda: len(application.records[NEW]) == COUNT * RECORDS)
    assert len(application.records[OLD]) == COUNT * RECORDS
    assert application.results == [(None, {Note.NONE})] * len(application.results), "notes are none of its commits"


@pytest.mark.parametrize("application", [("when revoked", each) for each in PROTOCOLS], indirect=True)
def test_batch_committer_is_shown_a_revocation_and_commits(application: Application, views: FakeViews) -> None:
    application.until(lambda: len(application.records[OLD]) == COUNT * RECORDS)
    switch(views, OLD, NEW, COUNT, groups=frozenset({"g"}), read_up_to=ENDS)
    application.until(lambda: application.noted() == {(RECORDS, kind_of(READ))})
    application.open_gate()
    application.until(lambda: len(application.records[NEW]) == COUNT * RECORDS)


@pytest.mark.parametrize("application", [("never", each) for each in PROTOCOLS], indirect=True)
def test_application_that_commits_nothing_is_noted_as_given_all(application: Application, views: FakeViews) -> None:
    application.until(lambda: len(application.records[OLD]) == COUNT * RECORDS)
    switch(views, OLD, NEW, COUNT, groups=frozenset({"g"}), read_up_to=ENDS)
    application.until(lambda: application.noted() == {(0, kind_of(GIVEN))})
    application.open_gate()
    application.until(lambda: len(application.records[NEW]) == COUNT * RECORDS)
    application.until(lambda: application.noted(NEW) == {(0, kind_of(OPENED))})


@pytest.mark.parametrize("when", ["after the callbacks", "after subscribe()", "in on_assign", "after on_assign raised"])
@pytest.mark.parametrize("application", [("drops when revoked", each) for each in DROPPING], indirect=True)
def test_records_that_an_application_drops_when_it_is_revoked_are_read_again(
    application: Application, views: FakeViews, when: str
) -> None:
    application.until(lambda: len(application.records[OLD]) == COUNT * RECORDS)

    def commit() -> None:
        with suppress(KafkaException):  # there may be nothing to commit
            application.consumer.commit(None, offsets=None, asynchronous=False)

    def fail() -> None:
        application.when_assigned = lambda: None
        raise ValueError("the application's")

    if "on_assign" in when:
        application.when_assigned = commit if when == "in on_assign" else fail
    views.set(OLD, modes_of(COUNT, COUNT - 1, PartitionMode.NONE))
    with suppress(ValueError):
        application.until(lambda: ("revoked", {OLD}) in application.calls)
    if when == "after subscribe()":
        application.consumer.subscribe([OLD])
    commit()
    application.when_assigned = lambda: None
    application.handled = application.committed()
    for partition, offset in application.handled.items():
        assert offset <= sum(each == partition for each, _ in application.records[OLD]), "it was dropped"
    application.until(lambda: len(application.records[OLD]) == (COUNT - 1) * RECORDS)
    views.set(OLD, modes_of(COUNT, COUNT))
    application.until(lambda: len(application.records[OLD]) == COUNT * RECORDS)
