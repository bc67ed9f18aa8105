"""Groups that learn modes from a real mode log, and groups whose members learn them at different times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from modeaware.local import Kafka
from tests.conftest import MakeTopic
from tests.support.group import FAST, Group, Member, Traffic
from tests.support.modelog import NONE, RO, RealLog, topic_record


@pytest.fixture
def group_conf(kafka: Kafka, make_group: Callable[[], str]) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": make_group(),
        "auto.offset.reset": "earliest",
        **FAST,
    }


def test_a_group_of_three_follows_the_mode_log(kafka: Kafka, make_topic: MakeTopic, group_conf: dict[str, Any]) -> None:
    topic = make_topic()
    log = RealLog(kafka.bootstrap_servers)
    conf = {**group_conf, "modeaware.mode.log.topic": log.topic}
    members = [Member([topic], conf, batch=batch) for batch in (0, 50, 0)]
    with Traffic(kafka.bootstrap_servers, {topic: range(12)}) as traffic, Group(members) as group:
        group.await_held(topic, range(12), [4, 4, 4])
        log.create()  # under running consumers
        log.append(topic_record(topic, 0, rest=RO))
        before = traffic.write_to(topic, range(4))
        group.await_delivered({record for record in before if record[1] >= 4})
        log.append(topic_record(topic, 1, rest=NONE))
        group.await_held(topic, range(4), [1, 1, 2])
        # Another member starts in the middle of it.
        late = Member([topic], conf)
        late.start()
        group.members.append(late)
        group.await_held(topic, range(4), [1, 1, 1, 1])
        log.append(topic_record(topic, 2, writable=12))
        group.await_held(topic, range(12), [3, 3, 3, 3])
        traffic.write_to(topic, range(12))
        group.check(traffic.finish())
    log.close()
