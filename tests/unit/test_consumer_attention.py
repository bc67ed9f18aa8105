"""Who is called by ``poll`` and ``consume``, and when the work in between is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# When polling does its work needs a clock that a test moves on; Consumer takes none.
from modeaware.confluent._attention import Attention, idle_stats


class World:
    """A clock that polling moves on, work to do, and the calls that reach librdkafka."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.results: list[Any] = []
        self.due: list[float] = []
        self.acted = 0
        self.while_acting: Callable[[], None] = lambda: None
        self.stats = idle_stats()
        self.attention = Attention(self.poll, self.consume, self.act, self.due_s, lambda: self.now_s, self.stats)

    def poll(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        timeout = kwargs.get("timeout", args[0] if args else -1.0)
        self.now_s += timeout if timeout >= 0 else 1000.0
        return self.results.pop(0) if self.results else None

    def consume(self, num_messages: int = 1, timeout: float = -1.0) -> Any:
        return self.poll(timeout=timeout) or []

    def act(self) -> None:
        self.acted += 1
        self.due = [at for at in self.due if at > self.now_s]
        self.while_acting()

    def due_s(self) -> float | None:
        return min(self.due, default=None)

    @property
    def timeouts(self) -> list[float]:
        return [kwargs["timeout"] for _, kwargs in self.calls]


@pytest.fixture
def world() -> World:
    return World()


def test_a_long_poll_comes_back_to_work_when_it_is_due(world: World) -> None:
    world.attention.call()
    world.due = [101.0, 103.0]
    assert world.attention.poll.call(10.0) is None
    assert world.acted == 3
    assert world.timeouts == [1.0, 2.0, 7.0]
    assert world.now_s == 110.0


def test_a_call_during_the_work_is_not_lost(world: World) -> None:
    world.attention.call()
    world.while_acting = lambda: world.attention.call() if world.acted == 1 else None
    world.attention.poll.call(1.0)
    assert world.acted == 2
    assert world.attention.direct


def test_work_that_fails_raises_and_is_tried_again(world: World) -> None:
    def fail() -> None:
        if world.acted == 1:
            raise ValueError("from a callback")

    world.while_acting = fail
    world.attention.call()
    with pytest.raises(ValueError, match="callback"):
        world.attention.poll.call(1.0)
    world.attention.poll.call(1.0)
    assert world.acted == 2


def test_the_stats_callback_runs_no_python_unless_there_is_work(world: World) -> None:
    assert world.stats.target is len  # a signal's exception would be lost in a Python function
    world.attention.call()
    world.stats.call("{}")
    assert world.acted == 1
    assert world.stats.target is len
