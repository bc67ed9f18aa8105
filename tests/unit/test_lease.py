"""Effects are carried out soon after an append, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware.controller.lease import LeasedEffects
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.effects import CreatePartitions, DeleteRecords, Effect
from tests.support.simulated import SimClock

DELETE = DeleteRecords("orders", "id", {1: 5})
CREATE = CreatePartitions("orders", "id", 4, None)


class Done:
    """Effects that were carried out, and when the log was last appended to."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.confirmed_s: float | None = None

    def perform(self, effect: Effect) -> None:
        self.done.append(effect)

    def create_partitions(self, effect: CreatePartitions, validate_only: bool = False) -> None:
        self.done.append((effect, validate_only))


def test_half_a_session_after_the_append_it_is_put_off() -> None:
    done, clock = Done(), SimClock()
    log: Any = done
    effects = LeasedEffects(done, log, 8_000, clock)
    for refused in (lambda: effects.perform(DELETE), lambda: effects.create_partitions(CREATE)):
        with pytest.raises(ClusterError, match="put off"):
            refused()
    done.confirmed_s = clock.monotonic_s()
    clock.advance(4_000)
    effects.perform(DELETE)
    effects.create_partitions(CREATE)
    assert done.done == [DELETE, (CREATE, False)]
    clock.advance(1)
    for refused in (lambda: effects.perform(DELETE), lambda: effects.create_partitions(CREATE)):
        with pytest.raises(ClusterError, match="put off") as error:
            refused()
        assert error.value.code is ErrorCode.REQUEST_TIMED_OUT, "which keeps the record that announces it"
    effects.create_partitions(CREATE, validate_only=True)
    assert done.done[2:] == [(CREATE, True)], "a look changes nothing"
