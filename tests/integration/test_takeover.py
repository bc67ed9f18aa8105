"""Several controllers on a real Kafka: one is active, the others stand by, and none that was replaced appends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from modeaware.cli.embedded import carry_out
from modeaware.controller.daemon import Controller
from modeaware.controller.election import Election, Seat
from modeaware.controller.status import Role
from modeaware.errors import ClusterError, ControllerFenced, ControllerUnavailable, ErrorCode
from modeaware.librdkafka import KafkaError, KafkaException, Producer
from modeaware.lifecycle.commands import CommandResult, DeletePartitionsCommand
from modeaware.modelog import writer as writer_module
from modeaware.modelog.observed_brokers import OBSERVED_BROKERS_KEY
from modeaware.modelog.records import CLAIM_KEY
from modeaware.modelog.topic import ensure_mode_log
from modeaware.modelog.writer import ModeLogWriter
from tests.conftest import MakeKafka, MakeTopic, topic_maker
from tests.support.controlled import INTERVAL_MS, QUIET_MS, Controlled, produce
from tests.support.groups import RunningGroup
from tests.support.takeover import ControllerProcess, assert_one_at_a_time, history
from tests.support.waiting import eventually

SESSION_MS = 6_000
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

    def start(on: Controlled = setting) -> ControllerProcess:
        made.append(ControllerProcess(on.conf, on.log, tmp_path, **CONFIG))
        return made[-1]

    yield start
    for process in made:
        process.kill()


def ask(controller: Controller, topic: str, to: int = 1) -> CommandResult:
    (result,) = controller.submit([DeletePartitionsCommand(topic, to, LONG_DELAY_MS)]).result(40)
    return result


def shrinks(controller: Controller, topic: str) -> bool:
    """Whether it carries the command out; a new topic's leaders are waited for."""
    return carry_out(controller, DeletePartitionsCommand(topic, 1, LONG_DELAY_MS)).code is ErrorCode.NONE


def epoch(setting: Controlled) -> int:
    claim = setting.claim()
    assert claim is not None
    return claim.controller_epoch


def members(setting: Controlled, *controllers: Controller) -> list[Controller]:
    """Those that are active, once each one knows."""
    eventually(lambda: all(each.role in (Role.ACTIVE, Role.STANDBY) for each in controllers))
    return [each for each in controllers if each.is_active]


# Standing by


def test_who_joins_stands_by_and_disturbs_nobody(setting: Controlled, make_topic: MakeTopic) -> None:
    first = setting.start(session_timeout_ms=SESSION_MS)
    assert (first.role, first.epoch) == (Role.ACTIVE, 1)
    others = [setting.start(session_timeout_ms=SESSION_MS) for _ in range(2)]
    assert [other.role for other in others] == [Role.STANDBY, Role.STANDBY]
    assert shrinks(first, make_topic(2))
    assert epoch(setting) == 1
    for other in others:
        with pytest.raises(
            ControllerUnavailable, match=f"the last claim is that of {first.controller_id}.*{first.address}"
        ) as refused:
            ask(other, make_topic(2))
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(ControllerUnavailable, match=f"the last claim is that of {first.controller_id}"):
        setting.make().start(wait_active_s=0.5)
    with pytest.raises(ControllerUnavailable, match=f"another controller is running: .*{first.controller_id}"):
        setting.make().run_once()
    assert shrinks(first, make_topic(2))
    assert (first.role, first.epoch, epoch(setting)) == (Role.ACTIVE, 1, 1)
    assert_one_at_a_time(history(setting.conf, setting.log))


def test_of_several_that_start_at_once_one_is_active(setting: Controlled) -> None:
    """There is no mode log yet: each of them tries to make it."""
    several = [setting.make(session_timeout_ms=SESSION_MS) for _ in range(4)]
    with ThreadPoolExecutor(len(several)) as pool:
        for started in [pool.submit(each.start) for each in several]:
            started.result(60)
    eventually(lambda: len(members(setting, *several)) == 1)
    assert_one_at_a_time(history(setting.conf, setting.log))


def test_a_clean_stop_hands_over_without_waiting_for_the_session(setting: Controlled, make_topic: MakeTopic) -> None:
    session_ms = 10_000  # brokers would take that long to notice by themselves
    first = setting.start(session_timeout_ms=session_ms)
    second, third = (setting.start(session_timeout_ms=session_ms) for _ in range(2))
    first.stop()
    eventually(lambda: second.is_active)
    assert first.role is Role.STOPPED
    assert first.failure is None
    assert members(setting, second, third) == [second], "the one that has been there longest"
    assert epoch(setting) == 2
    assert shrinks(second, make_topic(2))
    second.stop()
    eventually(lambda: third.is_active)
    assert [entry.controller_epoch for entry in history(setting.conf, setting.log) if entry.key == CLAIM_KEY] == [
        *(1, 1),
        *(2, 2),
        3,
    ], "each claim but the last was released by who held it"
    assert_one_at_a_time(history(setting.conf, setting.log))


# Dying, hanging, waking


def test_a_standby_takes_over_from_one_that_was_killed_and_goes_on(
    setting: Controlled, spawn: Callable[..., ControllerProcess], make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic, name = make_topic(4), make_group()
    first = produce(setting, topic, 40)
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(first)
    unread = produce(setting, topic, 40, "unread")
    process = spawn()
    process.wait_until_it_says("active: epoch 1")
    standby = setting.start(session_timeout_ms=SESSION_MS)
    assert standby.role is Role.STANDBY
    process.kill()
    eventually(lambda: standby.is_active, SESSION_MS / 1000 + 15)
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


def test_one_that_was_paused_for_longer_than_its_session_appends_nothing_and_stands_by(
    setting: Controlled, spawn: Callable[..., ControllerProcess], make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    """It wakes with a shrink in mind that it could go on with: the group has caught up meanwhile."""
    topic, name = make_topic(4), make_group()
    first = produce(setting, topic, 40)
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(first)
    unread = produce(setting, topic, 40, "unread")
    serving = setting.start()
    setting.shrink(topic, 1)
    setting.wait_for(topic, lambda record: setting.reasons(topic) == {f"group-lag:{name}"})
    serving.stop()
    process = spawn()
    process.wait_until_it_says("active: epoch 2")
    standby = setting.start(session_timeout_ms=SESSION_MS)
    process.pause()
    eventually(lambda: standby.is_active, SESSION_MS / 1000 + 15)
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(unread)
    process.resume()
    process.wait_until_it_says("standby: ")
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
    with pytest.raises(ControllerFenced, match="not the elected one"):
        zombie.append([("key", b'{"controller_epoch": 1}')], stale)
    assert not zombie.is_open, "its producer is thrown away"
    assert len(history(setting.conf, setting.log)) == 1
    zombie.open()
    with pytest.raises(ControllerFenced, match="not the elected one"):
        zombie.append([("key", b'{"controller_epoch": 1}')], stale)
    zombie.close()
    new.close()
    assert len(history(setting.conf, setting.log)) == 1


def test_the_election_knows_its_place(setting: Controlled) -> None:
    """On real brokers: the order of members, terms over rebalances, and what the coordinator confirms."""
    ensure_mode_log(setting.admin, setting.log)
    first, second, third = (Election(setting.conf, setting.log, SESSION_MS) for _ in range(3))

    def settle(*expected: tuple[Election, Seat]) -> None:
        def settled() -> bool:
            for each, _ in expected:
                each.poll()
            return all(each.seat is seat for each, seat in expected)

        eventually(settled, message=str([each.seat for each, _ in expected]))

    first.join()
    settle((first, Seat.LEADER))
    metadata = first.group_metadata
    # A host whose clock is behind is told of a time at which the first one was there already.
    second.join(after_ms=time.time_ns() // 1_000_000 + LONG_DELAY_MS)
    settle((first, Seat.LEADER), (second, Seat.STANDBY))
    eventually(lambda: first.poll() or first.group_metadata not in (None, metadata))
    assert first.term == 1, "the rebalance has not ended its term"
    assert (first.confirm(10), second.confirm(10)) == (True, False)
    assert second.group_metadata is None
    third.join()
    settle((first, Seat.LEADER), (second, Seat.STANDBY), (third, Seat.STANDBY))
    first.close()
    assert (first.seat, first.group_metadata) == (Seat.WAITING, None)
    settle((second, Seat.STANDBY), (third, Seat.LEADER))
    third.close()
    settle((second, Seat.LEADER))
    second.close()


def test_a_zombie_that_opens_the_log_ends_the_rightful_one_s_term_once(
    setting: Controlled, make_topic: MakeTopic
) -> None:
    """Paused right before init_transactions, it fences the rightful one, which opens the log again and goes on."""
    topic = make_topic(4)
    rightful = setting.start(session_timeout_ms=SESSION_MS)
    zombie = ModeLogWriter(setting.conf, setting.log)
    zombie.open()
    with pytest.raises(ControllerFenced):
        ask(rightful, topic)
    eventually(lambda: rightful.epoch == 2)
    assert shrinks(rightful, topic)
    with pytest.raises(ControllerFenced):
        zombie.append([(CLAIM_KEY, b"{}")])
    assert (rightful.epoch, epoch(setting)) == (2, 2)
    assert_one_at_a_time(history(setting.conf, setting.log))


# Transactions that do not end well


class Unlucky(Producer):
    """Its next commit goes wrong in the way that ``misfortune`` says; the producers after it are lucky."""

    misfortune: Callable[[Unlucky], None] | None = None

    def commit_transaction(self, *arguments: Any) -> None:
        misfortune, Unlucky.misfortune = Unlucky.misfortune, None
        if misfortune is not None:
            misfortune(self)
        super().commit_transaction(*arguments)


def times_out(producer: Unlucky) -> None:
    """The records are on the log, the transaction stays open, and nobody knows."""
    producer.flush(10)
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "commit_transaction", retriable=True))


def takes_too_long(producer: Unlucky) -> None:
    """As for one that was paused: the coordinator has aborted the transaction meanwhile."""
    producer.flush(10)
    time.sleep(4)  # transaction.timeout.ms, and the brokers' interval for looking


def test_a_writer_in_doubt_is_closed(setting: Controlled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "Producer", Unlucky)
    ensure_mode_log(setting.admin, setting.log)
    writer = ModeLogWriter(setting.conf, setting.log)
    writer.open()
    monkeypatch.setattr(Unlucky, "misfortune", times_out)
    with pytest.raises(ClusterError, match="_TIMED_OUT"):
        writer.append([("key", b'{"controller_epoch": 1}')])
    assert not writer.is_open
    writer.open()
    writer.append([("key", b'{"controller_epoch": 2}')])
    writer.close()
    assert [entry.controller_epoch for entry in history(setting.conf, setting.log)] == [2]


@pytest.mark.parametrize(
    ("misfortune", "error"), [(times_out, ClusterError), (takes_too_long, ControllerFenced)], ids=lambda it: it.__name__
)
def test_after_a_transaction_timeout_it_opens_and_reads_again(
    setting: Controlled,
    make_topic: MakeTopic,
    monkeypatch: pytest.MonkeyPatch,
    misfortune: Callable[[Unlucky], None],
    error: type[Exception],
) -> None:
    monkeypatch.setattr(writer_module, "Producer", Unlucky)
    monkeypatch.setattr(writer_module, "TRANSACTION_TIMEOUT_MS", 2_000 if misfortune is takes_too_long else 60_000)
    lost, kept = make_topic(4), make_topic(4)
    controller = setting.start()
    monkeypatch.setattr(Unlucky, "misfortune", misfortune)
    with pytest.raises(error):
        ask(controller, lost)
    eventually(lambda: controller.epoch == 2)
    assert shrinks(controller, kept)
    topics = [
        entry.key for entry in history(setting.conf, setting.log) if entry.key not in (CLAIM_KEY, OBSERVED_BROKERS_KEY)
    ]
    assert topics == [setting.record(kept).topic_id], "the transaction that failed has left nothing"
    assert_one_at_a_time(history(setting.conf, setting.log))


# Brokers


def test_the_brokers_restart_under_controllers(make_kafka: MakeKafka) -> None:
    kafka = make_kafka()
    (broker,) = kafka.brokers
    setting, topic, other = Controlled(kafka), topic_maker(kafka)(4), topic_maker(kafka)(4)
    first = setting.start(session_timeout_ms=SESSION_MS)
    second = setting.start(session_timeout_ms=SESSION_MS)
    try:
        assert shrinks(first, topic)
        broker.kill()
        broker.start()

        def one_of_them_does_it() -> bool:
            try:
                active = members(setting, first, second)
                return len(active) == 1 and ask(active[0], other).code is ErrorCode.NONE
            except (ControllerUnavailable, ControllerFenced, ClusterError):
                return False

        eventually(one_of_them_does_it, 90)
        assert setting.record(other).deletion is not None
        assert_one_at_a_time(history(setting.conf, setting.log))
    finally:
        first.stop()
        second.stop()


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


def test_sigterm_ends_it_soon_though_the_broker_is_frozen(
    make_kafka: MakeKafka, spawn: Callable[..., ControllerProcess]
) -> None:
    kafka = make_kafka()
    process = spawn(Controlled(kafka))
    process.wait_until_it_says("active: epoch 1")
    (broker,) = kafka.brokers
    broker.pause()
    try:
        assert process.terminate(15) == 0, process.said
    finally:
        broker.resume()
