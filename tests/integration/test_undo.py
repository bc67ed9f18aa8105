"""A shrink is taken back in every phase: everything is writable again, and nothing that was not deleted is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from modeaware.lifecycle.phases import topic_phase
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, left, produce
from tests.support.groups import RunningGroup
from tests.support.plain import watermarks

RW = PartitionMode.READ_WRITE


def come_to(phase: str, setting: Controlled, topic: str) -> None:
    setting.start(seal_quiet_ms=3_600_000 if phase == "seal" else 200)
    setting.shrink(topic, 1, delay_ms=None if phase == "retention" else 3_600_000 if phase == "delay" else 0)
    if phase in ("retention", "delay"):
        setting.wait_for(topic, lambda record: setting.reasons(topic) == {phase})
    else:
        setting.wait_for(topic, lambda record: topic_phase(record) == phase)


@pytest.mark.parametrize("phase", ["seal", "drain", "done"])
def test_in_phase(phase: str, setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]) -> None:
    check(phase, setting, make_topic(4), make_group())


def check(phase: str, setting: Controlled, topic: str, name: str) -> None:
    first = produce(setting, topic, 40)
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(first)
    unread = produce(setting, topic, 40, "unread") if phase in ("seal", "drain", "delay", "retention") else set()
    ends = {partition: end for partition, (_, end) in watermarks(setting.servers, topic).items()}
    come_to(phase, setting, topic)

    setting.grow(topic, 4)
    record = setting.wait_done(topic)
    assert record.modes == (RW,) * 4
    assert record.retired == {}
    assert record.deletion is None
    kept = left(setting, topic)
    assert all(kept[p] == (0 if phase == "done" else ends[p]) for p in (1, 2, 3)), "nothing else is deleted"

    again = {partition: produce(setting, topic, 5, f"again-{partition}", partition=partition) for partition in range(4)}
    assert {p: end for p, (_, end) in watermarks(setting.servers, topic).items()} == {
        p: end + 5 for p, end in ends.items()
    }
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(unread.union(*again.values()))
    assert sorted(group.values) == sorted(unread.union(*again.values())), "each once"
