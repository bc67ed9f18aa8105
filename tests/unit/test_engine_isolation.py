"""What nobody foresaw in the work on one topic: it is told, tried again, and ends nothing but that."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from modeaware.controller.schedule import elapsed_ms
from modeaware.errors import ClusterError, ConfigError, ControllerFenced, ErrorCode
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.phases import topic_phase
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import TopicRecord
from tests.support.engine_world import INTERVAL_MS, QUIET_MS, TOPIC, World

ODD = "an-odd-topic"


class Odd(World):
    """Beside the world's topic there is one that cannot be looked at: ``error`` is raised."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self.looks = 0
        self.shrink(4)
        odd = replace(self.record, topic=ODD, topic_id="odd")
        self.log.entries.append(("odd", odd.to_json()))
        self.engine.claim("test")
        observe = self.cluster.observe

        def look(topic: str, record: TopicRecord | None, rules: Sequence[GroupRule] = ()) -> TopicFacts:
            if topic == ODD:
                self.looks += 1
                if self.error is not None:
                    raise self.error
            return observe(topic, record, rules)

        self.cluster.observe = look  # type: ignore[method-assign]  # that is the fault injected here

    def told(self, caplog: pytest.LogCaptureFixture) -> list[int]:
        """The levels of what was told with its traceback."""
        return [entry.levelno for entry in caplog.records if entry.exc_info and ODD in entry.getMessage()]


@pytest.fixture
def odd(caplog: pytest.LogCaptureFixture) -> Odd:
    caplog.set_level(logging.DEBUG, "modeaware.controller")  # which a command in an earlier test may have set
    return Odd()


def test_a_topic_that_cannot_be_looked_at_holds_up_no_other(odd: Odd, caplog: pytest.LogCaptureFixture) -> None:
    odd.error = ValueError("year 58859 is out of range")
    odd.run(QUIET_MS + 10_000)
    phases = {record.topic: topic_phase(record) for record in odd.engine.records}
    assert phases == {TOPIC: "done", ODD: "seal"}
    assert odd.looks == 5, "after 1, 2, 4, 8 s"
    assert odd.told(caplog) == [logging.ERROR] + [logging.DEBUG] * 4
    assert "ValueError: year 58859 is out of range" in caplog.text
    assert caplog.text.count(f"topic {ODD}: cannot be checked now") == 5


def test_a_command_for_such_a_topic_is_refused(odd: Odd, caplog: pytest.LogCaptureFixture) -> None:
    odd.error = ConfigError("a file is missing for a moment")
    entries = list(odd.log.entries)
    result = odd.engine.execute(DeletePartitionsCommand(ODD, 2))
    assert result.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ConfigError: a file is missing for a moment" in (result.message or "")
    assert odd.log.entries == entries
    assert odd.told(caplog) == [logging.ERROR]


@pytest.mark.parametrize("error", [ControllerFenced("fenced"), KeyboardInterrupt(), SystemExit()])
def test_what_is_no_failure_of_a_topic_passes(odd: Odd, error: BaseException) -> None:
    odd.error = error
    with pytest.raises(type(error)):
        odd.engine.check("odd")
    with pytest.raises(type(error)):
        odd.engine.execute(DeletePartitionsCommand(ODD, 2))


@pytest.mark.parametrize("error", [ControllerFenced("fenced"), ClusterError("in doubt"), OSError("a bug")])
def test_what_becomes_of_the_log_is_never_kept_apart(odd: Odd, error: Exception) -> None:
    odd.clock.advance(QUIET_MS)
    for topic_id in (record.topic_id for record in odd.engine.records if record.topic == TOPIC):
        odd.log.failure = error
        with pytest.raises(type(error)):
            odd.engine.check(topic_id)
    odd.log.failure = error
    with pytest.raises(type(error)):
        odd.grow(12)


# Time


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_wall_clock_that_is_set_stops_no_look(step_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.shrink(4)
    topic_id = world.record.topic_id
    world.engine.check(topic_id)
    monkeypatch.setattr(world.clock, "now_ms", lambda: world.clock.time_ms + step_ms)
    looks = []
    for _ in range(10):
        world.clock.advance(INTERVAL_MS)
        if topic_id in world.engine.schedule.due(elapsed_ms(world.clock)):
            looks.append(world.engine.check(topic_id))
    assert len(looks) == 10
