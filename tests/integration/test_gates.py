"""Groups follow a topic that is replaced, on a real Kafka with the real controller: in key order, losing nothing."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition

from modeaware import Consumer
from tests.support.background import Background
from tests.support.plain import drain_topic
from tests.support.succession import Following, Given, Reader, Readers, Writer
from tests.support.waiting import eventually


@pytest.mark.parametrize("strategy", [None, "consumer"])
def test_group_of_three_reads_the_successor_after_the_topic(following: Following, strategy: str | None) -> None:
    journal: list[Given] = []
    conf = following.conf(strategy)
    members = [Reader(name, [following.topic], conf, journal, batch=50 * (name == "b")) for name in "abc"]
    with Writer(following.producer, following.name) as writer, Readers(members, journal) as readers:
        readers.await_held(following.topic, 12)
        readers.await_given(following.topic, 300)
        following.replace()
        readers.await_given(following.successor, 300)
        following.served.wait_done(following.topic)
        readers.await_held(following.successor, 4)
        readers.await_held(following.topic, 0)
        writer.stop()
        readers.check(writer.sent)
    print(f"{strategy}: an ordered group paused for {readers.pause_s(following.topic, following.successor):.2f} s")


def test_slow_member_is_waited_for_until_it_has_handled_its_last_record(following: Following) -> None:
    journal: list[Given] = []
    conf = following.conf(auto_commit_interval_ms=50)
    members = [Reader(name, [following.topic], conf, journal, work_s=0.01 * (name == "a")) for name in "abc"]
    with Writer(following.producer, following.name) as writer, Readers(members, journal) as readers:
        readers.await_held(following.topic, 12)
        readers.await_given(following.topic, 300)
        following.replace()
        readers.await_given(following.successor, 1)
        members[0].faster()
        readers.await_given(following.successor, 300)
        following.served.wait_done(following.topic)
        writer.stop()
        readers.check(writer.sent)
    last = max(given.at_s for given in journal if given.topic == following.topic)
    assert all(given.at_s >= last + 0.01 for given in journal if given.topic == following.successor)


def test_application_that_commits_by_itself_opens_the_gate_by_its_commits(following: Following) -> None:
    journal: list[Given] = []
    conf = following.conf("cooperative-sticky", enable_auto_commit=False, auto_offset_reset="latest")
    members = [Reader(name, [following.topic], conf, journal, every=20) for name in "ab"]
    with Readers(members, journal) as readers:
        readers.await_held(following.topic, 12)
        with Writer(following.producer, following.name) as writer:
            readers.await_given(following.topic, 300)
            following.replace()
            readers.await_given(following.successor, 1)
            following.served.wait_done(following.topic)
            writer.stop()
            readers.check(writer.sent)


class Member:
    """One that is told of a replacement before the switch: it holds the successor behind its gate.

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
def test_successor_of_an_undone_replacement_is_never_shown(following: Following, strategy: str | None) -> None:
    member = Member(following, strategy)
    following.replace(undo=True)
    # Between an assignment that is given back and the next one nothing is hidden, and nothing is read.
    member.poll_until(lambda: member.hidden == 0 and member.consumer.assignment())
    assert member.consumer.modeaware_stats()["gates"] == []
    assert {p.topic for p in member.consumer.assignment()} == member.shown == {following.topic}
    assert not member.errors
    member.consumer.close()


@pytest.mark.parametrize("batch", [0, 10])
def test_deleted_successor_is_no_error_of_an_application_that_has_not_named_it(
    following: Following, batch: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "modeaware")
    member = Member(following, "cooperative-sticky", batch)
    following.served.admin.delete_topics([following.successor])[following.successor].result()
    member.poll_until(lambda: "Subscribed topic not available" in caplog.text)
    assert not member.errors
    assert member.shown == {following.topic}
    member.consumer.close()


class StockWriter(Background):
    """A producer that knows no modes. Its transaction is open as long as it writes: the topic's end is not final."""

    def __init__(self, following: Following) -> None:
        super().__init__()
        self._producer, self._topic = Producer(following.served.conf), following.topic
        self._open = Producer({**following.served.conf, "transactional.id": following.topic})
        self._open.init_transactions(30)
        self._open.begin_transaction()
        self._open.produce(self._topic, partition=0)
        assert self._open.flush(30) == 0

    def work(self) -> None:
        for number in itertools.count():
            if self.done.wait(0.02):
                break
            self._producer.produce(self._topic, b"%d" % number, b"stock")
        self._open.abort_transaction(30)
        assert self._producer.flush(30) == 0


@pytest.mark.parametrize("strategy", [None, "cooperative-sticky"])
def test_latest_group_that_begins_at_a_shut_gate_skips_nothing_by_a_rebalance(
    following: Following, strategy: str | None
) -> None:
    journal: list[Given] = []
    conf = following.conf(strategy, auto_offset_reset="latest")
    first, second = (Reader(name, [following.topic], conf, journal) for name in "ab")
    readers = Readers([first, second], journal)

    def is_shut(member: Reader) -> bool:
        return [gate["state"] for gate in member.consumer.modeaware_stats()["gates"]] == ["shut"]

    with ExitStack() as stack, Writer(following.producer, following.name) as writer:
        with StockWriter(following):
            following.replace(fence="none")
            eventually(lambda: drain_topic(following.served.servers, following.successor), 60)
            stack.enter_context(first)
            readers.await_held(following.topic, 12)
            readers.await_given(following.topic)
            stack.enter_context(second)
            eventually(lambda: second.held and readers.fine(), 60)
            readers.await_held(following.topic, 12)
            assert is_shut(first)
            assert is_shut(second)
        readers.await_given(following.successor, 300)
        writer.stop()
        stored = drain_topic(following.served.servers, following.successor)
        records = {(each.key(), int(each.value() or b"")) for each in stored}
        eventually(
            lambda: records == {(each.key, each.number) for each in list(journal) if each.topic == following.successor},
            60,
            message="every record of the successor is given",
        )
    assert not first.errors + second.errors
