"""Getting work done in the polling thread, the only one that may touch a consumer's assignment.

``poll`` and ``consume`` go straight to librdkafka's C methods. When there is something to do, both are pointed at a
function that does it first. A thread that sits inside an endless ``poll()`` is reached through its ``stats_cb``.

While there is nothing to do that callback is a C function: confluent_kafka loses what a signal handler raises in a
Python one (its ``consume()`` then ends in a SystemError), and Ctrl-C must stay a KeyboardInterrupt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from modeaware.confluent._switch import Switch, Target

_POLL_PARAMETERS = ("timeout",)
_CONSUME_PARAMETERS = ("num_messages", "timeout")


class Attention:
    """Two switches for ``poll`` and ``consume``, and the work that they are turned for.

    Attributes:
        stopped: :meth:`stop` was called.

    Args:
        poll: librdkafka's own bound method (or what stands between it and ours).
        consume: likewise.
        act: does the work, in the polling thread; may raise, and is then asked again at the next poll.
        due_s: when there is work again without a :meth:`call`, on the clock ``now_s``; None for never.
        now_s: the monotonic clock.
        stats: what is called with the statistics, as :func:`idle_stats` made it; turned with the others.
    """

    def __init__(
        self,
        poll: Target,
        consume: Target,
        act: Callable[[], None],
        due_s: Callable[[], float | None],
        now_s: Callable[[], float],
        stats: Switch,
    ) -> None:
        self._direct = (poll, consume, stats.target)
        self._attentive = (self._attentive_poll, self._attentive_consume, self._attentive_stats)
        self._act = act
        self._due_s = due_s
        self._now_s = now_s
        self._lock = threading.Lock()
        self._called = False
        self._acting = False
        self.stopped = False
        self.poll = Switch(poll)
        self.consume = Switch(consume)
        self._stats = stats

    def call(self) -> None:
        """Have the polling thread act soon (any thread)."""
        with self._lock:
            if not self.stopped:
                self._called = True
                self._point(self._attentive)

    def stop(self) -> None:
        """Point at librdkafka's own methods for good (they say that the consumer is closed)."""
        with self._lock:
            self.stopped = True
            self._point(self._direct)

    @property
    def direct(self) -> bool:
        """Whether nothing of ours is between a caller and librdkafka."""
        return self.poll.target is self._direct[0]

    def _point(self, targets: tuple[Target, Target, Target]) -> None:
        self.poll.point_to(targets[0])
        self.consume.point_to(targets[1])
        self._stats.point_to(targets[2])

    def serve(self) -> float | None:
        """Do what is due, in the polling thread; the seconds until there is more to do, None if nothing waits.

        Called from a callback inside the work itself, it does nothing.
        """
        if self._acting or self.stopped:
            return None
        due_s = self._due_s()
        if self._called or (due_s is not None and self._now_s() >= due_s):
            self._do()
            due_s = self._due_s()
        with self._lock:
            if due_s is None and not self._called:
                self._point(self._direct)
                return None
            return 0.0 if due_s is None or self._called else max(due_s - self._now_s(), 0.0)

    def _do(self) -> None:
        self._acting, self._called = True, False
        done = False
        try:
            self._act()
            done = True
        finally:
            self._acting = False
            if not done:
                self.call()

    def _attentive_poll(self, *args: Any, **kwargs: Any) -> Any:
        return self._call_in_slices(self._direct[0], _POLL_PARAMETERS, args, kwargs)

    def _attentive_consume(self, *args: Any, **kwargs: Any) -> Any:
        return self._call_in_slices(self._direct[1], _CONSUME_PARAMETERS, args, kwargs)

    def _attentive_stats(self, _figures: str) -> None:
        self.serve()

    def _call_in_slices(
        self, method: Target, parameters: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call ``method``, but come back to work whenever something is due before its timeout is over."""
        given = {**dict(zip(parameters, args, strict=False)), **kwargs}
        timeout = given.get("timeout", -1.0)
        wait_s = self.serve()
        if len(args) > len(parameters) or not isinstance(timeout, int | float) or wait_s is None:
            return method(*args, **kwargs)
        deadline_s = None if timeout < 0 else self._now_s() + timeout
        while True:
            left_s = None if deadline_s is None else max(deadline_s - self._now_s(), 0.0)
            last = left_s is not None and (wait_s is None or left_s <= wait_s)
            slice_s = left_s if last else (-1.0 if wait_s is None else wait_s)
            result = method(**{**given, "timeout": slice_s})
            if result or last or (left_s is None and wait_s is None):
                return result
            wait_s = self.serve()


def idle_stats() -> Switch:
    """A ``stats_cb`` that does nothing, in C."""
    return Switch(len)


class ThinnedStats:
    """Calls the application's ``stats_cb`` at the interval it asked for, while ours is shorter.

    Args:
        callback: the application's.
        every: call it every so many times.
        ours: called each time.
    """

    def __init__(self, callback: Callable[[str], Any], every: int, ours: Callable[[str], Any]) -> None:
        self._callback = callback
        self._every = every
        self._ours = ours
        self._count = 0

    def __call__(self, figures: str) -> None:
        self._ours(figures)
        self._count += 1
        if self._count % self._every == 0:
            self._callback(figures)


STATS_INTERVAL_MS = 1000


def stats_interval(asked_ms: int) -> tuple[int, int]:
    """The interval to set and every how many of them the application is called: ``(ours_ms, every)``.

    At most :data:`STATS_INTERVAL_MS`, and a whole fraction of what the application asked for (0 = never).
    """
    if asked_ms <= 0:
        return STATS_INTERVAL_MS, 1
    every = -(-asked_ms // STATS_INTERVAL_MS)
    while asked_ms % every:
        every += 1
    return asked_ms // every, every


def with_stats(conf: Mapping[str, Any], ours: Callable[[str], Any]) -> dict[str, Any]:
    """``conf`` with statistics at :func:`stats_interval`, for ``ours`` and for the application's own callback."""
    asked_ms = int(conf.get("statistics.interval.ms", 0))
    interval_ms, every = stats_interval(asked_ms)
    theirs = conf.get("stats_cb") if asked_ms > 0 else None
    callback = ours if theirs is None else ThinnedStats(theirs, every, ours)
    return {**conf, "statistics.interval.ms": interval_ms, "stats_cb": callback}
