"""Groups follow a topic that is replaced, on a real Kafka with the real controller: in key order, losing nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition

from modeaware import Consumer
from tests.support.fetching import Fetching
from tests.support.plain import drain_topic
from tests.support.succession import Following
from tests.support.waiting import eventually
from tests.workload.load import Load
from tests.workload.reader import Reader
from tests.workload.record import number_of


@pytest.mark.parametrize("strategy", [None, "consumer"])
def test_group_of_three_reads_the_new_topic_after_the_topic(following: Following, strategy: str | None) -> None:
    load = Load()
    conf = following.conf(strategy)
    following.writer(load)
    following.readers(load, conf, 0, 0)
    following.readers(load, conf, 0, batch=50)
    with load.running():
        load.await_held(following.topic, 12)
        load.await_given(following.topic, 300)
        following.replace()
        load.await_given(following.new_topic, 300)
        following.served.wait_done(following.topic)
        load.await_held(following.new_topic, 4)
        load.await_held(following.topic, 0)
    load.check()
    print(f"{strategy}: an ordered group paused for {load.pause_ms(following.topic, following.new_topic)} ms")


def test_slow_member_is_waited_for_until_it_has_handled_its_last_record(following: Following) -> None:
    load = Load()
    following.writer(load)
    slow, *_ = following.readers(load, following.conf(auto_commit_interval_ms=50), 0.01, 0, 0)
    with load.running():
        load.await_held(following.topic, 12)
        load.await_given(following.topic, 300)
        following.replace()
        load.await_given(following.new_topic, 1)
        slow.work_s = 0.0
        load.await_given(following.new_topic, 300)
        following.served.wait_done(following.topic)
    load.check()
    assert load.pause_ms(following.topic, following.new_topic) >= 10, "the last record was handled"


def test_application_that_commits_by_itself_opens_the_gate_by_its_commits(following: Following) -> None:
    load = Load()
    conf = following.conf("cooperative-sticky", enable_auto_commit=False, auto_offset_reset="latest")
    fetching = Fetching()
    following.readers(load, {**conf, **fetching.conf}, 0, 0, every=20)
    with ExitStack() as stack:
        for reader in load.readers:
            stack.enter_context(reader)
        load.await_held(following.topic, 12)
        fetching.await_fetched(following.topic, range(12), members=2)
        with following.writer(load):
            load.await_given(following.topic, 300)
            following.replace()
            load.await_given(following.new_topic, 1)
            following.served.wait_done(following.topic)
        load.await_read()
    load.check()


class Member:
    """One that is told of a replacement before the switch: it holds the new topic behind its gate.

    Attributes:
        shown: the topics that its callbacks are called with.
        errors: what it was given beside records.
    """

    def __init__(self, following: Following, strategy: str | None, batch: int = 0) -> None:
        self.consumer = Consumer(following.conf(strategy, topic_metadata_refresh_interval_ms=500))
        self.shown: set[str] = set()
        self.errors: list[KafkaError] = []
        self._batch = batch
        self.consumer.subscribe([following.topic], on_assign=self._called, on_revoke=self._called)
        self.poll_until(lambda: self.shown)
        following.replace(pause_before_switch=True)
        self.poll_until(lambda: self.hidden == 4)

    def _called(self, _: object, partitions: list[TopicPartition]) -> None:
        self.shown.update(p.topic for p in partitions)

    @property
    def hidden(self) -> int:
        return int(self.consumer.modeaware_stats()["hidden"])

    def poll_until(self, condition: Callable[[], object]) -> None:
        def holds() -> bool:
            messages = self.consumer.consume(self._batch, 0.2) if self._batch else [self.consumer.poll(0.2)]
            self.errors += [error for each in messages if each is not None and (error := each.error()) is not None]
            return bool(condition())

        eventually(holds, 30)


@pytest.mark.parametrize("strategy", [None, "cooperative-sticky", "consumer"])
def test_new_topic_of_an_undone_replacement_is_never_shown(following: Following, strategy: str | None) -> None:
    member = Member(following, strategy)
    following.replace(undo=True)
    # Between an assignment that is given back and the next one nothing is hidden, and nothing is read.
    member.poll_until(lambda: member.hidden == 0 and member.consumer.assignment())
    assert member.consumer.modeaware_stats()["gates"] == []
    assert {p.topic for p in member.consumer.assignment()} == member.shown == {following.topic}
    assert not member.errors
    member.consumer.close()


@pytest.mark.parametrize("batch", [0, 10])
def test_deleted_new_topic_is_no_error_of_an_application_that_has_not_named_it(
    following: Following, batch: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "modeaware")
    member = Member(following, "cooperative-sticky", batch)
    following.served.admin.delete_topics([following.new_topic])[following.new_topic].result()
    member.poll_until(lambda: "Subscribed topic not available" in caplog.text)
    assert not member.errors
    assert member.shown == {following.topic}
    member.consumer.close()


@contextmanager
def open_transaction(following: Following) -> Iterator[None]:
    """A transaction that is open meanwhile: the topic's end is not final."""
    producer = Producer({**following.served.conf, "transactional.id": following.topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(following.topic, partition=0)
    assert producer.flush(30) == 0
    yield
    producer.abort_transaction(30)


@pytest.mark.parametrize("strategy", [None, "cooperative-sticky"])
def test_latest_group_that_begins_at_a_shut_gate_skips_nothing_by_a_rebalance(
    following: Following, strategy: str | None
) -> None:
    load = Load()
    conf = following.conf(strategy, auto_offset_reset="latest")
    writer = following.writer(load)
    first, second = following.readers(load, conf, 0, 0)

    def is_shut(member: Reader) -> bool:
        return [gate["state"] for gate in member.consumer.modeaware_stats()["gates"]] == ["closed"]

    stock = load.writer(lambda: Producer(following.served.conf), following.topic, per_s=50)
    with ExitStack() as stack, writer:
        with open_transaction(following), stock:
            following.replace(fence="none")
            eventually(lambda: drain_topic(following.served.servers, following.new_topic), 60)
            stack.enter_context(first)
            load.await_held(following.topic, 12)
            load.await_given(following.topic)
            stack.enter_context(second)
            eventually(lambda: second.held and load.fine(), 60)
            load.await_held(following.topic, 12)
            assert is_shut(first)
            assert is_shut(second)
        load.await_given(following.new_topic, 300)
        writer.stop()
        stored = drain_topic(following.served.servers, following.new_topic)
        numbers = {number_of(each.value(), each.key()) for each in stored}

        def is_given() -> bool:
            given = load.ledger.read_by(load.ledger.groups[0], following.new_topic)
            return numbers == {record.number for record in given}

        eventually(is_given, 60, message="every record of the new topic is given")
    assert not first.errors + second.errors
