"""Groups that learn modes from a real mode log, and groups whose members learn them at different times."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from modeaware.config import ClientConfig
from modeaware.local import Kafka
from modeaware.modes import PartitionMode
from modeaware.views import registry
from tests.conftest import MakeTopic
from tests.support.fake_views import FakeViews, modes_of
from tests.support.group import FAST, Group, Member, Traffic
from tests.support.modelog import NONE, RO, RealLog, topic_record
from tests.support.waiting import eventually


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


class LateViews(FakeViews):
    """Views that hear of changes late, each at its own time; ``refresh`` brings the latest, as the mode log does."""

    def __init__(self, truth: FakeViews, seed: int) -> None:
        super().__init__(views=truth.views().values())
        self._truth = truth
        self._random = random.Random(seed)
        truth.subscribe(self._later)

    def _later(self, changed: Mapping[str, Any]) -> None:
        timer = threading.Timer(self._random.random(), self.catch_up)
        timer.daemon = True
        timer.start()

    def refresh(self, timeout_s: float) -> None:
        super().refresh(timeout_s)
        self.catch_up()

    def catch_up(self) -> None:
        with self._lock:
            for topic, view in self._truth.views().items():
                if view.version > self.view(topic).version:
                    self.set(topic, view.modes, epoch=view.epoch)


@pytest.mark.parametrize("seed", [1, 2])
def test_members_that_learn_of_changes_at_different_times_never_read_a_record_twice(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, make_topic: MakeTopic, group_conf: dict[str, Any], seed: int
) -> None:
    topic = make_topic()
    chance = random.Random(seed)
    truth = FakeViews()
    made: list[LateViews] = []

    def acquire(conf: Mapping[str, Any], config: ClientConfig) -> LateViews:
        made.append(LateViews(truth, seed * 100 + len(made)))
        return made[-1]

    monkeypatch.setattr(registry, "acquire", acquire)
    members = [Member([topic], group_conf, batch=batch) for batch in (0, 20, 0)]
    with Traffic(kafka.bootstrap_servers, {topic: range(12)}, pause_s=0.005) as traffic, Group(members) as group:
        group.await_held(topic, range(12), [4, 4, 4])
        for _ in range(12):
            readable = sorted(chance.sample(range(12), chance.randint(1, 12)))
            truth.set(topic, modes_of(12, readable, PartitionMode.NONE))
            time.sleep(chance.choice([0.0, 0.1, 0.7]))  # changes come in bursts and in the middle of rebalances
        truth.set(topic, modes_of(12, 4, PartitionMode.NONE))
        group.await_held(topic, range(4), [1, 1, 2])
        truth.set(topic, modes_of(12, 12))
        group.await_held(topic, range(12), [4, 4, 4])
        group.check(traffic.finish())
        eventually(lambda: all(m.consumer.modeaware_stats()["state"] == "direct" for m in members))
