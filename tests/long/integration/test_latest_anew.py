"""A ``latest`` group that is deleted and made anew once a replaced topic is gone: latest means latest."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

import modeaware
from tests.support.fetching import Fetching
from tests.support.plain import ends
from tests.support.succession import Following
from tests.support.waiting import eventually
from tests.workload.load import Load


@pytest.mark.parametrize("strategy", [None, "consumer"])
def test_latest_group_that_is_made_anew_begins_at_the_end_of_the_new_topic(
    following: Following, strategy: str | None
) -> None:
    load = Load()
    conf = following.conf(strategy, auto_offset_reset="latest")
    fetching = Fetching()
    following.readers(load, {**conf, **fetching.conf}, 0, 0)
    for reader in load.readers:
        reader.start()
    load.await_held(following.topic, 12)
    fetching.await_fetched(following.topic, range(12), members=2)
    with following.writer(load):
        load.await_given(following.topic, 300)
        following.replace(delay_ms=0)
        load.await_given(following.new_topic, 300)
        following.served.wait_for(following.topic, lambda record: record.replacement and record.replacement.gone_ms, 90)
    load.await_read()
    for reader in load.readers:
        reader.stop()
    admin = AdminClient(following.served.conf)
    eventually(lambda: admin.delete_consumer_groups([following.group])[following.group].result() is None, 30)
    before = ends(following.served.servers, following.new_topic)
    assert all(before.values()), "each partition has records that the group is not to be given"
    read: list[Message] = []
    with closing(modeaware.Consumer(conf)) as consumer:
        consumer.subscribe([following.topic])

        def partitions() -> set[int | None]:
            read.extend(message for message in consumer.consume(1_000, 0.2) if message.error() is None)
            return {each.partition() for each in read}

        eventually(lambda: partitions() or len(consumer.assignment()) == 4, 60)
        with Load().writer(lambda: modeaware.Producer(following.producer), following.name):
            eventually(lambda: len(partitions()) == 4, 60)
    places = [(each.partition() or 0, each.offset() or 0) for each in read]
    early = [(partition, offset) for partition, offset in places if offset < before[partition]]
    assert not early, f"{len(early)} records from before the group was made, the first at {min(early)}, of {before}"
