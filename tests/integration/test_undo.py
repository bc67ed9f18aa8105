"""A shrink is taken back in any phase: everything is writable again, and nothing that was not deleted is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from modeaware.lifecycle.state import topic_phase
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, left, produce
from tests.support.groups import RunningGroup
from tests.support.plain import ends


@pytest.mark.parametrize("phase", ["seal", "drain", "done"])
def test_in_phase(setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], phase: str) -> None:
    topic, name = make_topic(4), make_group()
    first = produce(setting, topic, 40)
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(first)
    unread = produce(setting, topic, 40, "unread") if phase != "done" else set()
    before = ends(setting.servers, topic)
    setting.start(seal_quiet_ms=3_600_000 if phase == "seal" else 200)
    setting.shrink(topic, 1)
    setting.wait_for(topic, lambda record: topic_phase(record) == phase)

    setting.grow(topic, 4)
    record = setting.wait_done(topic)
    assert (record.modes, record.retired, record.deletion) == ((PartitionMode.READ_WRITE,) * 4, {}, None)
    kept = left(setting, topic)
    assert all(kept[p] == (0 if phase == "done" else before[p]) for p in (1, 2, 3)), "nothing else is deleted"

    again = unread.union(*(produce(setting, topic, 5, f"again-{p}", partition=p) for p in range(4)))
    assert ends(setting.servers, topic) == {p: end + 5 for p, end in before.items()}
    with RunningGroup(setting.servers, topic, name) as group:
        group.wait_for(again)
    assert sorted(group.values) == sorted(again), "each once"
