"""When a topic is looked at again. Pure: times are numbers."""

from __future__ import annotations

from modeaware.controller.schedule import Schedule

INTERVAL_MS = 300_000


def blocked(schedule: Schedule, now_ms: int, *, due_in_ms: int | None = None, progress: bool = False) -> int:
    """After a look that found the topic held up: in how many ms the next is due."""
    schedule.after_check("t", now_ms, progress=progress, idle=False, due_in_ms=due_in_ms)
    next_ms = schedule.next_ms()
    assert next_ms is not None
    return next_ms - now_ms


def test_a_blocked_topic_is_tried_less_and_less_often_up_to_the_interval() -> None:
    schedule = Schedule(INTERVAL_MS)
    waits = [blocked(schedule, 0) for _ in range(12)]
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000] + [INTERVAL_MS] * 3
    assert [blocked(schedule, 0, progress=True), blocked(schedule, 0)] == [1_000, 2_000], "progress begins it anew"


def test_what_is_known_to_fall_due_sooner_is_not_waited_past() -> None:
    assert blocked(Schedule(INTERVAL_MS), 100, due_in_ms=250) == 250
    assert blocked(Schedule(INTERVAL_MS), 100, due_in_ms=10**6) == 1_000


def test_an_idle_topic_is_watched_at_the_interval() -> None:
    schedule = Schedule(INTERVAL_MS)
    schedule.after_check("t", 7, progress=True, idle=True, due_in_ms=1)
    assert schedule.next_ms() == 7 + INTERVAL_MS


def test_the_longest_due_comes_first() -> None:
    schedule = Schedule(INTERVAL_MS)
    for topic_id, due_ms in (("b", 3), ("a", 1), ("c", 2), ("later", 9)):
        schedule.now(topic_id, due_ms)
    assert schedule.due(5) == ["a", "c", "b"]
    assert schedule.next_ms() == 1


def test_topic_is_due_in_the_pace_of_its_groups_within_the_interval() -> None:
    schedule, at_ms = Schedule(INTERVAL_MS), 5

    def due_in_ms(pace_ms: int, *, idle: bool = False, due_ms: int | None = None) -> int:
        schedule.after_check("t", at_ms, progress=False, idle=idle, due_in_ms=due_ms, pace_ms=pace_ms)
        next_ms = schedule.next_ms()
        assert next_ms is not None
        return next_ms - at_ms

    assert [due_in_ms(each) for each in (100, 10_000, INTERVAL_MS * 2)] == [100, 10_000, INTERVAL_MS]
    assert due_in_ms(10_000, due_ms=300) == 300, "what falls due sooner"
    assert due_in_ms(10_000, idle=True) == 10_000
