"""More groups that follow a topic that is replaced: patterns, late groups, static members, chains, no order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from modeaware.aio import AIOConsumer
from modeaware.kafka_python import KafkaConsumer
from tests.support.plain import create_topic
from tests.support.succession import Following
from tests.support.waiting import eventually
from tests.workload.journal import Kind
from tests.workload.load import Load
from tests.workload.reader import Reader
from tests.workload.record import log_of, number_of
from tests.workload.writer import Writer


def test_group_that_begins_late_reads_the_topic_first(following: Following, make_group: Callable[[], str]) -> None:
    load = Load("early", "late")
    with following.writer(load):
        for early in following.readers(load, following.conf(), 0):
            with early:
                load.await_given(following.topic, 300)
                following.replace()
                following.served.wait_done(following.topic)
        following.group = make_group()
        (late,) = following.readers(load, following.conf(), 0, group="late")
        late.start()
        load.await_given(following.new_topic, 1, "late")
        eventually(lambda: following.topic not in {topic for topic, _ in late.held}, 60)
    load.await_read("late")
    late.stop()
    load.check(["late"])


def test_pattern_that_matches_only_the_old_name_gets_the_new_topic_beside_it(following: Following) -> None:
    load = Load()
    conf = following.conf(topic_metadata_refresh_interval_ms=500)
    following.writer(load)
    following.readers(load, conf, 0, 0, topics=[f"^{following.topic}$"])
    with load.running():
        load.await_given(following.topic, 300)
        following.replace(delay_ms=0)
        load.await_given(following.new_topic, 1)
        following.served.wait_for(following.topic, lambda record: record.replacement and record.replacement.gone_ms)
    load.check()


@pytest.mark.parametrize("strategy", [None, "consumer"])
def test_pattern_that_matches_both_names_waits_at_the_gate_and_lets_the_topic_be_deleted(
    following: Following, strategy: str | None
) -> None:
    load = Load()
    conf = following.conf(strategy, topic_metadata_refresh_interval_ms=500)
    pattern = [f"^{following.topic}.*"]
    following.writer(load)
    following.readers(load, conf, 0, 0, topics=pattern)
    with load.running():
        load.await_given(following.topic, 300)
        following.replace(delay_ms=0)
        load.await_given(following.new_topic, 1)
        following.served.wait_for(following.topic, lambda record: record.replacement and record.replacement.released_ms)
        load.await_held(following.topic, 0)
        create_topic(following.served.servers, f"{following.topic}-more", 2, configs={})
        load.await_held(f"{following.topic}-more", 2)
        following.served.wait_for(following.topic, lambda record: record.replacement and record.replacement.gone_ms)
        (late,) = following.readers(load, conf, 0, topics=pattern)
        with late:
            eventually(lambda: late.held and late.stats["state"] == "direct", 60)
            time.sleep(2)  # several refreshes
            assert late.stats["state"] == "direct"
        load.readers.remove(late)
        assert not late.errors
        load.await_held(following.new_topic, 4)
    load.check()


def test_group_that_never_commits_waits_for_the_controllers_timeout(
    following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    load = Load()
    following.writer(load)
    following.readers(load, following.conf(enable_auto_commit=False), 0)
    with load.running():
        load.await_given(following.topic, 300)
        following.replace()
        load.await_given(following.new_topic, 1)
    load.check()
    assert "the application has not committed " in caplog.text


def test_members_that_need_no_order_read_both_at_once(following: Following) -> None:
    load = Load(ordered=())
    following.writer(load)
    slow, _ = following.readers(load, following.conf(modeaware_on_replace="unordered"), 0.01, 0)
    with load.running():
        load.await_given(following.topic, 300)
        following.replace()
        load.await_given(following.new_topic, 1)
        slow.work_s = 0.0
        following.served.wait_done(following.topic)
    load.check()


def test_chain_of_new_topics_is_read_one_after_the_other(following: Following, make_group: Callable[[], str]) -> None:
    load = Load("early", "late")
    with ExitStack() as stack:
        for reader in following.readers(load, following.conf(), 0, 0):
            stack.enter_context(reader)
        with following.writer(load):
            load.await_given(following.topic, 300)
            following.replace()
            following.served.wait_done(following.topic)
            load.await_given(following.new_topic, 100)
            following.topic, following.new_topic = following.new_topic, f"{following.name}-v3"
            following.replace(6)
            load.await_given(following.new_topic, 100)
            following.served.wait_done(following.topic)
        load.await_read("early")
    following.group = make_group()
    (late,) = following.readers(load, following.conf("consumer"), 0, group="late", topics=[following.name])
    with late:
        load.await_read("late")
    load.check()


@pytest.mark.parametrize("partitions", [range(12), range(2)], ids=["all", "some"])
def test_topics_of_a_chain_whose_offsets_expire_are_not_read_anew(following: Following, partitions: range) -> None:
    """As they do after ``offsets.retention.minutes``, while the topics wait for their own retention."""
    topics = [following.name, f"{following.name}-v2", f"{following.name}-v3"]
    load = Load()

    def expire() -> None:
        counts = zip(topics, (12, 4), strict=False)
        expired = [TopicPartition(topic, p) for topic, count in counts for p in range(count) if p in partitions]
        admin = KafkaAdminClient(bootstrap_servers=following.served.servers)
        admin.delete_group_offsets(following.group, expired)
        admin.close()

    def reader() -> Reader:
        (made,) = following.readers(load, following.conf(), 0, topics=[following.name])
        return made

    with following.writer(load):
        with reader():
            load.await_given(following.name, 300)
            for following.topic, following.new_topic in pairwise(topics):
                following.replace()
                following.served.wait_done(following.topic)
            load.await_given(topics[-1], 100)
            load.await_held(topics[-1], 4)
            eventually(lambda: load.held(topics[0]) == load.held(topics[1]) == [], 30)
        before = [load.ledger.read_by("group", topic) for topic in topics[:-1]]
        expire()
        load.readers.clear()
        with reader():
            load.await_held(topics[-1], 4)
            load.more(100)
        expire()
        consumer = KafkaConsumer(
            following.name, bootstrap_servers=following.served.servers, modeaware_mode_log_topic=following.served.log,
            group_id=following.group, auto_offset_reset="earliest",
        )  # fmt: skip
        later = {record.topic for _ in range(20) for each in consumer.poll(500).values() for record in each}
        consumer.close()
    assert later == {topics[-1]}
    assert [load.ledger.read_by("group", topic) for topic in topics[:-1]] == before
    assert load.check([]).duplicates == {"group": 0}


def test_static_members_that_are_upgraded_one_by_one_read_the_new_topic(following: Following) -> None:
    """Each is given what it had, though it subscribes to more (KAFKA-12759)."""
    load = Load()

    def member(name: str, *, stock: bool = False) -> Reader:
        # A static member that has gone holds up its group, and all replacements of the cluster, for its session.
        conf = following.conf("cooperative-sticky", group_instance_id=name, session_timeout_ms=6_000)
        (made,) = following.readers(load, conf, 0, stock=stock)
        return made

    with ExitStack() as stack:
        stocks = {name: stack.enter_context(member(name, stock=True)) for name in "ab"}
        with following.writer(load):
            load.await_given(following.topic, 300)
            load.await_held(following.topic, 12)
            following.replace()
            following.served.wait_for(
                following.topic, lambda record: record.replacement and record.replacement.switched_ms
            )
            for name, stock in stocks.items():
                stock.stop()
                load.readers.remove(stock)
                stack.enter_context(member(name))
            load.await_given(following.new_topic, 1)
            following.served.wait_done(following.topic)
        load.await_read()
    load.check()


def test_asyncio_consumer_follows(following: Following) -> None:
    load = Load()
    sink = load.ledger.reader("group", "a")

    async def take(consumer: AIOConsumer) -> None:
        for message in await consumer.consume(100, timeout=0.2):
            assert message.error() is None
            number = number_of(message.value(), message.key())
            sink.note(Kind.READ, number, log_of(message.topic(), message.partition()), message.offset())

    async def read(writer: Writer) -> None:
        consumer = AIOConsumer(following.conf())
        await consumer.subscribe([following.topic])
        while load.ledger.distinct["group"] < 300:
            await take(consumer)
        following.replace()
        while not load.ledger.read_by("group", following.new_topic):
            await take(consumer)
        await asyncio.to_thread(writer.stop)
        while load.ledger.unread()["group"]:
            await take(consumer)
        await consumer.close()

    with following.writer(load) as writer:
        asyncio.run(asyncio.wait_for(read(writer), 60))
    load.check()
