"""More groups that follow a topic that is replaced: patterns, late groups, static members, chains, no order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from modeaware.aio import AIOConsumer
from modeaware.kafka_python import KafkaConsumer
from tests.support.plain import create_topic
from tests.support.succession import Following, Given, Reader, Readers, Writer
from tests.support.waiting import eventually


@pytest.mark.parametrize("strategy", ["roundrobin", "cooperative-sticky"])
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


def test_group_that_begins_late_reads_the_topic_first(following: Following, make_group: Callable[[], str]) -> None:
    early, late = list[Given](), list[Given]()
    with Writer(following.producer, following.name) as writer:
        with Readers([Reader("a", [following.topic], following.conf(), early)], early) as readers:
            readers.await_given(following.topic, 300)
            following.replace()
            following.served.wait_done(following.topic)
        following.group = make_group()
        with Readers([Reader("b", [following.topic], following.conf(), late)], late) as readers:
            readers.await_given(following.successor, 1)
            readers.await_held(following.topic, 0)
            writer.stop()
            readers.check(writer.sent)


def test_pattern_that_matches_only_the_old_name_gets_the_successor_beside_it(following: Following) -> None:
    journal: list[Given] = []
    pattern = f"^{following.topic}$"
    members = [
        Reader(name, [pattern], following.conf(topic_metadata_refresh_interval_ms=500), journal) for name in "ab"
    ]
    with Writer(following.producer, following.name) as writer, Readers(members, journal) as readers:
        readers.await_given(following.topic, 300)
        following.replace(delay_ms=0)
        readers.await_given(following.successor, 1)
        following.served.wait_for(following.topic, lambda record: record.replacement and record.replacement.gone_ms)
        writer.stop()
        readers.check(writer.sent)


@pytest.mark.parametrize("strategy", [None, "consumer"])
def test_pattern_that_matches_both_names_waits_at_the_gate_and_lets_the_topic_be_deleted(
    following: Following, strategy: str | None
) -> None:
    journal: list[Given] = []
    conf = following.conf(strategy, topic_metadata_refresh_interval_ms=500)
    members = [Reader(name, [f"^{following.topic}.*"], conf, journal) for name in "ab"]
    with Writer(following.producer, following.name) as writer, Readers(members, journal) as readers:
        readers.await_given(following.topic, 300)
        following.replace(delay_ms=0)
        readers.await_given(following.successor, 1)
        following.served.wait_for(following.topic, lambda record: record.replacement and record.replacement.let_go_ms)
        readers.await_held(following.topic, 0)
        create_topic(following.served.servers, f"{following.topic}-more", 2, configs={})
        readers.await_held(f"{following.topic}-more", 2)
        following.served.wait_for(following.topic, lambda record: record.replacement and record.replacement.gone_ms)
        late = Reader("late", [f"^{following.topic}.*"], conf, journal)
        with Readers([late], journal):
            eventually(lambda: late.held and late.consumer.modeaware_stats()["state"] == "direct", 60)
            time.sleep(2)  # several refreshes
            assert late.consumer.modeaware_stats()["state"] == "direct"
        assert not late.errors
        readers.await_held(following.successor, 4)
        writer.stop()
        readers.check(writer.sent)


def test_group_that_never_commits_waits_for_the_timeout(following: Following, caplog: pytest.LogCaptureFixture) -> None:
    journal: list[Given] = []
    conf = following.conf(enable_auto_commit=False, modeaware_gate_timeout_ms=1_000)
    with (
        Writer(following.producer, following.name) as writer,
        Readers([Reader("a", [following.topic], conf, journal, every=0)], journal) as readers,
    ):
        readers.await_given(following.topic, 300)
        following.replace()
        readers.await_given(following.successor, 1)
        writer.stop()
        readers.check(writer.sent)
    assert "modeaware.gate.timeout.ms without progress" in caplog.text


def test_members_that_need_no_order_read_both_at_once(following: Following) -> None:
    journal: list[Given] = []
    conf = following.conf(modeaware_on_replace="unordered")
    members = [Reader(name, [following.topic], conf, journal, work_s=0.01 * (name == "a")) for name in "ab"]
    with Writer(following.producer, following.name) as writer, Readers(members, journal) as readers:
        readers.await_given(following.topic, 300)
        following.replace()
        readers.await_given(following.successor, 1)
        members[0].faster()
        following.served.wait_done(following.topic)
        writer.stop()
        readers.check(writer.sent, ordered=False)


def test_chain_of_successors_is_read_one_after_the_other(following: Following, make_group: Callable[[], str]) -> None:
    early, late = list[Given](), list[Given]()
    with Writer(following.producer, following.name) as writer:
        with Readers([Reader(name, [following.topic], following.conf(), early) for name in "ab"], early) as readers:
            readers.await_given(following.topic, 300)
            following.replace()
            following.served.wait_done(following.topic)
            readers.await_given(following.successor, 100)
            following.topic, following.successor = following.successor, f"{following.name}-v3"
            following.replace(6)
            readers.await_given(following.successor, 100)
            following.served.wait_done(following.topic)
            writer.stop()
            readers.check(writer.sent)
        following.group = make_group()
        with Readers([Reader("c", [following.name], following.conf("consumer"), late)], late) as readers:
            readers.check(writer.sent)


@pytest.mark.parametrize("partitions", [range(12), range(2)], ids=["all", "some"])
def test_topics_of_a_chain_whose_offsets_expire_are_not_read_anew(following: Following, partitions: range) -> None:
    """As they do after ``offsets.retention.minutes``, while the topics wait for their own retention."""
    topics = [following.name, f"{following.name}-v2", f"{following.name}-v3"]
    journal: list[Given] = []

    def expire() -> None:
        counts = zip(topics, (12, 4), strict=False)
        expired = [TopicPartition(topic, p) for topic, count in counts for p in range(count) if p in partitions]
        admin = KafkaAdminClient(bootstrap_servers=following.served.servers)
        admin.delete_group_offsets(following.group, expired)
        admin.close()

    with Writer(following.producer, following.name) as writer:
        with Readers([Reader("a", [following.name], following.conf(), journal)], journal) as readers:
            readers.await_given(following.name, 300)
            for following.topic, following.successor in pairwise(topics):
                following.replace()
                following.served.wait_done(following.topic)
            readers.await_given(topics[-1], 100)
            readers.await_held(topics[-1], 4)
            eventually(lambda: readers.held(topics[0]) == readers.held(topics[1]) == [], 30)
        before = len(journal)
        expire()
        with Readers([Reader("b", [following.name], following.conf(), journal)], journal) as readers:
            readers.await_held(topics[-1], 4)
            eventually(lambda: len(journal) > before + 100, 60)
        expire()
        consumer = KafkaConsumer(
            following.name, bootstrap_servers=following.served.servers, modeaware_mode_log_topic=following.served.log,
            group_id=following.group, auto_offset_reset="earliest",
        )  # fmt: skip
        later = {record.topic for _ in range(20) for each in consumer.poll(500).values() for record in each}
        consumer.close()
        writer.stop()
    assert {given.topic for given in journal[before:]} == later == {topics[-1]}
    numbers = [(given.key, given.number) for given in journal]
    assert len(numbers) == len({*numbers})


def test_static_members_that_are_upgraded_one_by_one_read_the_successor(following: Following) -> None:
    """Each is given what it had, though it subscribes to more (KAFKA-12759)."""
    journal: list[Given] = []

    def member(name: str, *, stock: bool = False) -> Reader:
        # A static member that has gone holds up its group, and all replacements of the cluster, for its session.
        conf = following.conf("cooperative-sticky", group_instance_id=name, session_timeout_ms=6_000)
        return Reader(name, [following.topic], conf, journal, stock=stock)

    with (
        Writer(following.producer, following.name) as writer,
        Readers([member(name, stock=True) for name in "ab"], journal) as readers,
    ):
        readers.await_given(following.topic, 300)
        readers.await_held(following.topic, 12)
        following.replace()
        following.served.wait_for(following.topic, lambda record: record.replacement and record.replacement.switched_ms)
        for place, name in enumerate("ab"):
            readers.members[place].stop()
            readers.members[place] = member(name)
            readers.members[place].start()
        readers.await_given(following.successor, 1)
        following.served.wait_done(following.topic)
        writer.stop()
        readers.check(writer.sent)


def test_asyncio_consumer_follows(following: Following) -> None:
    journal: list[Given] = []

    async def take(consumer: AIOConsumer) -> None:
        for message in await consumer.consume(100, timeout=0.2):
            assert message.error() is None
            journal.append(Given(time.monotonic(), "a", message.topic(), message.key(), int(message.value())))

    async def read(writer: Writer) -> None:
        consumer = AIOConsumer(following.conf())
        await consumer.subscribe([following.topic])
        while len(journal) < 300:
            await take(consumer)
        following.replace()
        while not any(given.topic == following.successor for given in journal):
            await take(consumer)
        await asyncio.to_thread(writer.stop)
        while len({(given.key, given.number) for given in journal}) < sum(writer.sent.values()):
            await take(consumer)
        await consumer.close()

    with Writer(following.producer, following.name) as writer:
        asyncio.run(asyncio.wait_for(read(writer), 60))
    Readers([], journal).check(writer.sent)
