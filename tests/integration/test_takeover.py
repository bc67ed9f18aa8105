"""Several controllers on a real Kafka: one is active, the others stand by, and none that was replaced appends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from modeaware.cli.embedded import carry_out_all
from modeaware.cluster.group_listing import election_group
from modeaware.controller.daemon import Controller
from modeaware.controller.election import Election
from modeaware.controller.status import Role, ready
from modeaware.errors import ClusterError, ControllerFenced, ControllerUnavailable, ErrorCode, ModeAwareError
from modeaware.lifecycle.commands import CommandResult, DeletePartitionsCommand
from modeaware.modelog.records import CLAIM_KEY
from modeaware.modelog.topic import ensure_mode_log
from modeaware.modelog.writer import ModeLogWriter
from tests.conftest import MakeTopic
from tests.support.controlled import INTERVAL_MS, QUIET_MS, Controlled
from tests.support.groups import RunningGroup
from tests.support.kafka_fixtures import Lagging
from tests.support.takeover import ControllerProcess, assert_one_at_a_time, history
from tests.support.waiting import eventually

SESSION_MS = 3_000
"""Where a test waits for its end; a busy machine keeps a session of this length alive."""
LONG_SESSION_MS = 10_000
LONG_DELAY_MS = 3_600_000
CONFIG = {
    "modeaware.seal.quiet.ms": QUIET_MS,
    "delete.topic.partition.check.interval.ms": INTERVAL_MS,
    "modeaware.controller.session.timeout.ms": SESSION_MS,
}


@pytest.fixture
def spawn(setting: Controlled, tmp_path: Path) -> Iterator[Callable[..., ControllerProcess]]:
    """Starts controllers as processes, killed with the test."""
    made: list[ControllerProcess] = []

    def start() -> ControllerProcess:
        made.append(ControllerProcess(setting.conf, setting.log, tmp_path, **CONFIG))
        return made[-1]

    yield start
    for process in made:
        process.kill()


def ask(controller: Controller, topic: str, to: int = 1) -> CommandResult:
    (result,) = controller.submit([DeletePartitionsCommand(topic, to, LONG_DELAY_MS)]).result(40)
    return result


def shrinks(controller: Controller, topic: str) -> bool:
    """Whether it carries the command out; a new topic's leaders are waited for."""
    command = DeletePartitionsCommand(topic, 1, LONG_DELAY_MS)
    (answer,) = carry_out_all(controller, {topic: command}).values()
    if isinstance(answer, ModeAwareError):
        raise answer
    return answer.code is ErrorCode.NONE


def epoch(setting: Controlled) -> int:
    claim = setting.claim()
    assert claim is not None
    return claim.controller_epoch


def test_joining_controller_becomes_a_standby_while_another_one_is_active(
    setting: Controlled, make_topic: MakeTopic
) -> None:
    first = setting.start(session_timeout_ms=LONG_SESSION_MS)
    assert (first.role, first.epoch) == (Role.ACTIVE, 1)
    others = [setting.start(session_timeout_ms=LONG_SESSION_MS) for _ in range(2)]
    assert [other.role for other in others] == [Role.STANDBY, Role.STANDBY]
    assert shrinks(first, make_topic(2))
    assert epoch(setting) == 1
    for other in others:
        with pytest.raises(
            ControllerUnavailable, match=f"the last claim is that of {first.controller_id}.*{first.address}"
        ) as refused:
            ask(other, make_topic(2))
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(ControllerUnavailable, match=f"another controller is running: .*{first.controller_id}"):
        setting.make().run_once()
    assert shrinks(first, make_topic(2))
    assert (first.role, first.epoch, epoch(setting)) == (Role.ACTIVE, 1, 1)
    assert_one_at_a_time(history(setting.conf, setting.log))


def test_a_clean_stop_hands_over_without_waiting_for_the_session(setting: Controlled, make_topic: MakeTopic) -> None:
    first = setting.start(session_timeout_ms=LONG_SESSION_MS)
    second, third = (setting.start(session_timeout_ms=LONG_SESSION_MS) for _ in range(2))
    first.stop()
    eventually(lambda: second.is_active)
    assert first.role is Role.STOPPED
    assert first.failure is None
    eventually(lambda: third.role is Role.STANDBY)  # the one that has been there longest is elected
    assert epoch(setting) == 2
    assert shrinks(second, make_topic(2))
    second.stop()
    eventually(lambda: third.is_active)
    entries = history(setting.conf, setting.log)
    claims = [(entry.controller_epoch, entry.released) for entry in entries if entry.key == CLAIM_KEY]
    # Each claim but the last was released by the controller that held it; renewals for new generations count once.
    assert list(dict.fromkeys(claims)) == [(1, False), (1, True), (2, False), (2, True), (3, False)]
    assert_one_at_a_time(entries)


def test_a_standby_takes_over_from_one_that_was_killed_and_goes_on(
    setting: Controlled, spawn: Callable[..., ControllerProcess], make_topic: MakeTopic, lagging: Lagging
) -> None:
    topic = make_topic(4)
    name, unread = lagging(topic)
    process = spawn()
    process.wait_until_it_says("active: epoch 1")
    standby = setting.start(session_timeout_ms=SESSION_MS)
    assert standby.role is Role.STANDBY
    process.kill()
    eventually(lambda: standby.is_active, 60)
    setting.shrink(topic, 1)
    lag = f"group-lag:{name}"
    held = setting.wait_for(topic, lambda record: {r.reason for r in record.retired.values()} == {lag})

    another = spawn()
    another.wait_until_it_says("standby: ")
    standby.stop()
    another.wait_until_it_says("active: epoch 3")
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(unread)
        record = setting.wait_done(topic)
    assert (held.controller_epoch, record.controller_epoch) == (2, 3)
    assert [r.seal_offset for r in record.retired.values()] == [r.seal_offset for r in held.retired.values()]
    assert_one_at_a_time(history(setting.conf, setting.log))


def test_controller_paused_for_longer_than_its_session_appends_nothing_and_becomes_a_standby(
    setting: Controlled, spawn: Callable[..., ControllerProcess], make_topic: MakeTopic, lagging: Lagging
) -> None:
    """It wakes with a shrink in mind that it could go on with: the group has caught up meanwhile."""
    topic = make_topic(4)
    name, unread = lagging(topic)
    serving = setting.start()
    setting.shrink(topic, 1)
    setting.wait_for(topic, lambda record: setting.reasons(topic) == {f"group-lag:{name}"})
    serving.stop()
    process = spawn()
    process.wait_until_it_says("active: epoch 2")
    standby = setting.start(session_timeout_ms=SESSION_MS)
    process.pause()
    eventually(lambda: standby.is_active, 60)
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(unread)
    process.resume()
    process.wait_until_it_says(f"standby: the last claim is that of {standby.controller_id}")
    assert setting.wait_done(topic).controller_epoch == 3
    entries = history(setting.conf, setting.log)
    assert_one_at_a_time(entries)
    assert max(entry.controller_epoch for entry in entries) == 3, "it has not claimed the log again"
    assert standby.is_active


def test_a_stale_generation_cannot_append(setting: Controlled) -> None:
    """Its producer is not fenced yet: nobody else has opened the log."""
    ensure_mode_log(setting.admin, setting.log)
    old, new = (Election(setting.conf, setting.log, SESSION_MS) for _ in range(2))
    old.join()
    eventually(lambda: old.poll() or old.leader)
    stale = old.group_metadata
    zombie = ModeLogWriter(setting.conf, setting.log)
    zombie.open()
    zombie.append([("key", b'{"controller_epoch": 1}')], stale)
    assert old.confirm(10) is True
    old.close()
    new.join()
    eventually(lambda: new.poll() or new.leader)
    with pytest.raises(ControllerFenced, match="elected"):
        zombie.append([("key", b'{"controller_epoch": 1}')], stale)
    assert not zombie.is_open, "its producer is thrown away"
    assert len(history(setting.conf, setting.log)) == 1
    zombie.open()
    with pytest.raises(ControllerFenced, match="elected"):
        zombie.append([("key", b'{"controller_epoch": 1}')], stale)
    zombie.close()
    new.close()
    assert len(history(setting.conf, setting.log)) == 1


def test_a_mode_log_that_is_deleted_is_made_again(setting: Controlled, make_topic: MakeTopic) -> None:
    controller = setting.start()
    assert shrinks(controller, make_topic(2))
    setting.admin.delete_topics([setting.log])[setting.log].result(20)
    topic = make_topic(2)

    def does_it() -> bool:
        try:
            return ask(controller, topic).code is ErrorCode.NONE
        except (ControllerUnavailable, ControllerFenced, ClusterError):
            return False

    eventually(does_it, 90)
    assert setting.record(topic).deletion is not None


@contextmanager
def stranger(setting: Controlled, client_id: str) -> Iterator[list[bool]]:
    """A plain consumer in the election's group, once it is a member: whether each of its assignments has the log."""
    conf = {
        **setting.conf,
        "group.id": election_group(setting.log),
        "client.id": client_id,
        "session.timeout.ms": 6_000,
    }
    consumer, assignments = Consumer(conf), list[bool]()
    consumer.subscribe([setting.log], on_assign=lambda _, partitions: assignments.append(bool(partitions)))

    def joined() -> bool:
        consumer.poll(0.1)
        return bool(assignments)

    try:
        eventually(joined)
        yield assignments
    finally:
        consumer.close()


def not_ready(*controllers: Controller) -> list[str]:
    return [why.partition(":")[0] for each in controllers if (why := ready(each.snapshot())) is not None]


def test_a_consumer_that_joins_the_elections_group_by_mistake_takes_nothing(
    setting: Controlled, make_topic: MakeTopic
) -> None:
    active, standby = setting.start(), setting.start()
    with stranger(setting, "a-tool") as assignments:
        assert assignments == [False]
        assert shrinks(active, make_topic(2))
    assert (active.role, active.epoch, standby.role) == (Role.ACTIVE, 1, Role.STANDBY)
    assert not_ready(active, standby) == []


def test_a_consumer_that_takes_the_election_on_purpose_is_reported_by_every_controller(setting: Controlled) -> None:
    first, second = setting.start(), setting.start()
    with stranger(setting, "!a") as assignments:
        assert assignments == [True]
        eventually(lambda: [why[:20] for why in not_ready(first, second)] == ["no active controller"] * 2)
    eventually(lambda: first.is_active or second.is_active)
    eventually(lambda: not_ready(first, second) == [])
