"""Methods whose target changes in place, so that an alias taken earlier (``send = producer.produce``) follows.

``produce``, ``poll`` and ``consume`` go straight to librdkafka's C methods as long as nothing of ours has to run. When
a consumer has work to do, :class:`PollHook` points ``poll`` and ``consume`` at a function that does it first, in the
polling thread, the only one that may touch the assignment. A thread that sits inside an endless ``poll()`` is reached
through its ``stats_cb``. While there is nothing to do that callback is a C function: confluent_kafka loses what a
signal handler raises in a Python one (its ``consume()`` then ends in a SystemError), and Ctrl-C must stay a
KeyboardInterrupt.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from modeaware.callouts import InnerLock

Forward: Any = partial
"""What is handed out; in C where the package was installed with a compiler."""
with suppress(ImportError):
    from modeaware.confluent import _routed

    Forward = getattr(_routed, "Forward", partial)  # a build of before there was one

Target = Callable[..., Any]

_POLL_PARAMETERS = ("timeout",)
_CONSUME_PARAMETERS = ("num_messages", "timeout")


class Switch:
    """Holds ``call``, which calls the target of the moment.

    ``call`` is a ``functools.partial`` without arguments, whose ``__setstate__`` replaces the function inside. That is
    one step under the GIL, so threads may call it meanwhile. It adds some 30 ns to a C function, :data:`Forward` none.

    Attributes:
        call: what to hand out; always the same object.
    """

    __slots__ = ("_kept", "call")

    def __init__(self, target: Target) -> None:
        self.call: partial[Any] = Forward(target)
        # With an attribute: another partial of one without any keeps the target of that moment instead.
        self.call.__setstate__((target, (), {}, {"follows": True}))
        # A call that is under way holds no reference to its target but the partial's, so each target is kept.
        self._kept: list[Target] = [target]

    @property
    def target(self) -> Target:
        """What ``call`` calls now."""
        return self.call.func

    def point_to(self, target: Target) -> None:
        """Make every later call go to ``target``. Callers pass few different ones: each is kept for good."""
        if not any(kept is target for kept in self._kept):
            self._kept.append(target)
        if self.call.func is not target:
            attributes = getattr(self.call, "__dict__", None)
            self.call.__setstate__((target, (), {}, attributes))  # type: ignore[attr-defined] # typeshed leaves it out


def idle_stats() -> Switch:
    """Return a ``stats_cb`` that does nothing, in C."""
    return Switch(len)


class PollHook:
    """Work the polling thread does before it returns a record.

    Attributes:
        stopped: :meth:`stop` was called.
        polling: a hooked call is inside librdkafka, which may have taken records that the caller was not given yet.
        inside: the work is done within a callback of librdkafka.

    Args:
        poll: librdkafka's own bound method (or what stands between it and ours).
        consume: likewise.
        act: does the work, in the polling thread; may raise, and is then called again at the next poll.
        due_s: when there is work again without a :meth:`call`, on the monotonic clock; None for never.
        stats: the ``stats_cb``, as :func:`idle_stats` made it; turned with the others.
        finish: is given what a hooked call returns, to be changed in place, and what every call returns while
            :meth:`finish_all` says so. True: nothing is left of it, and the call goes on for the rest of its timeout.
    """

    def __init__(
        self,
        poll: Target,
        consume: Target,
        act: Callable[[], None],
        due_s: Callable[[], float | None],
        stats: Switch,
        finish: Callable[[Any], bool] = lambda _result: False,
    ) -> None:
        self._stock: tuple[Target, ...] = (poll, consume, stats.target)
        self._finished = (
            partial(self._call_finished, poll, _POLL_PARAMETERS),
            partial(self._call_finished, consume, _CONSUME_PARAMETERS),
            stats.target,
        )
        self._idle: tuple[Target, ...] = self._stock
        self._hooked = (
            partial(self._call_in_slices, poll, _POLL_PARAMETERS),
            partial(self._call_in_slices, consume, _CONSUME_PARAMETERS),
            self._serve_inside,
        )
        self._act = act
        self._finish = finish
        self._due_s = due_s
        self._lock = InnerLock()
        self._called = False
        self._acting = False
        self.stopped = False
        self.polling = False
        self.inside = False
        self.poll = Switch(poll)
        self.consume = Switch(consume)
        self._stats = stats

    def call(self) -> None:
        """Have the polling thread act soon (any thread)."""
        with self._lock:
            if not self.stopped:
                self._called = True
                self._point(self._hooked)

    def finish_all(self, wanted: bool) -> None:
        """Have what is returned finished also where there is no work, or not any more (any thread)."""
        with self._lock:
            was_idle = self.poll.target is self._idle[0]
            self._idle = self._finished if wanted else self._stock
            if was_idle and not self.stopped:
                self._point(self._idle)

    def stop(self) -> None:
        """Point at librdkafka's own methods for good (they raise that the consumer is closed)."""
        with self._lock:
            self.stopped = True
            self._point(self._stock)

    @property
    def direct(self) -> bool:
        """Whether callers reach librdkafka's own methods."""
        return self.poll.target is self._stock[0]

    def _point(self, targets: tuple[Target, ...]) -> None:
        for switch, target in zip((self.poll, self.consume, self._stats), targets, strict=True):
            switch.point_to(target)

    def serve(self) -> float | None:
        """Do what is due, in the polling thread.

        Called from a callback inside the work itself, it does nothing.

        Returns:
            The seconds until there is more to do, None if nothing waits.
        """
        if self._acting or self.stopped:
            return None
        due_s = self._due_s()
        if self._called or (due_s is not None and time.monotonic() >= due_s):
            self._do()
            due_s = self._due_s()
        with self._lock:
            if due_s is None and not self._called:
                self._point(self._idle)
                return None
            return 0.0 if due_s is None or self._called else max(due_s - time.monotonic(), 0.0)

    def _serve_inside(self, _figures: str) -> None:
        self.inside = True
        try:
            self.serve()
        finally:
            self.inside = False

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

    def _call_in_slices(self, method: Target, parameters: tuple[str, ...], *args: Any, **kwargs: Any) -> Any:
        """Call ``method``, but return to work whenever something is due before its timeout is over."""
        given = {**dict(zip(parameters, args, strict=False)), **kwargs}
        timeout = given.get("timeout", -1.0)
        wait_s = self.serve()
        if len(args) > len(parameters) or not isinstance(timeout, int | float):
            return method(*args, **kwargs)  # librdkafka refuses that
        deadline_s = None if timeout < 0 else time.monotonic() + timeout
        while True:
            left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0.0)
            last = left_s is not None and (wait_s is None or left_s <= wait_s)
            slice_s = left_s if last else (-1.0 if wait_s is None else wait_s)
            result = self._polled(method, **{**given, "timeout": slice_s})
            if self._finish(result):
                last = deadline_s is not None and time.monotonic() >= deadline_s
                result = result if isinstance(result, list) else None
            # Not by its truth: a message's is that of its length, and a tombstone would be lost.
            if last or (result is not None and result != []):
                return result
            wait_s = self.serve()

    def _call_finished(self, method: Target, parameters: tuple[str, ...], *args: Any, **kwargs: Any) -> Any:
        """Call ``method``; where nothing is left of its result, go on for the rest of its timeout."""
        began_s = time.monotonic()
        result = method(*args, **kwargs)
        if not self._finish(result):
            return result
        given = {**dict(zip(parameters, args, strict=False)), **kwargs}
        if given.get("timeout", -1.0) >= 0:
            given["timeout"] = max(given["timeout"] - (time.monotonic() - began_s), 0.0)
        return self._call_in_slices(method, parameters, **given)

    def _polled(self, method: Target, **kwargs: Any) -> Any:
        self.polling = True
        try:
            return method(**kwargs)
        finally:
            self.polling = False
