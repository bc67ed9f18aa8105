"""Methods whose target changes in place, so that earlier references (``send = producer.produce``) follow the change.

``produce``, ``poll`` and ``consume`` are librdkafka's C methods as long as no code of ours has to run. When a consumer
has work to do, :class:`PollHook` points ``poll`` and ``consume`` at a function that first does the work. So the polling
thread does the work: only this thread may touch the assignment. A thread inside an endless ``poll()`` is reached
through its ``stats_cb``. While there is nothing to do, that callback is a C function, so that Ctrl-C stays a
KeyboardInterrupt. In a Python callback, confluent_kafka loses an exception of a signal handler, and its ``consume()``
then ends in a SystemError.

While work is pending, a call is *hooked*: it is made in slices, and the work is done between them. Like librdkafka's
own, ``consume`` returns when its batch is full or its timeout is over. So a batch may take several slices. During the
work, the polling thread then has records that librdkafka counts as delivered and that the application did not get yet:
:attr:`PollHook.taken`. A rebalance within such a call leaves these records in the batch. The same happens in
confluent_kafka's own ``consume``, which takes a batch in calls of 0.2 s. With a timeout of at most 0.2 s,
confluent_kafka makes one call, so all records of the batch are of partitions that the application still holds. With
such a timeout, our first slice that takes records is therefore the last. If a call raises, the records that it took are
returned to librdkafka (confluent_kafka would drop them).

As in confluent_kafka, a client that is dropped ends at once, not when the garbage collector runs. So no object that a
client holds refers back to the client. Targets take the client as their first argument, as functions of a class do;
other parts have a :class:`Stock` or a :func:`weakly` bound method.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodDescriptorType
from typing import Any, Final, TypeVar, cast

from modeaware.callouts import InnerLock

Target = Callable[..., Any]
_T = TypeVar("_T", bound=Target)

Forward: Any = partial
"""The class of the handed-out callables; in C where the package was installed with a compiler."""
FollowingMethod: Any = None
"""The type that :func:`following` returns, or None if the package was installed without a compiler."""
with suppress(ImportError):
    from modeaware.confluent import _routed

    Forward, FollowingMethod = _routed.Forward, _routed.FollowingMethod


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final[Any] = _Absent()
"""The default of a parameter for which an explicit None has a meaning."""


def following(method: _T) -> _T:
    """Make a method of a class call the target in an instance's slot ``_following_NAME``, with the instance first.

    ``method`` makes the same call in Python. It is used if that slot is empty or the package has no C extension. With
    and without the extension, ``instance.NAME`` is a bound method with all attributes of a Python method.

    A Python method that runs for each record names its parameters and passes them all by position. Named parameters
    take a third of the time of ``*args, **kwargs``, and librdkafka reads arguments by position twice as fast.
    """
    return method if FollowingMethod is None else FollowingMethod(method)


def slot_of_produce(produce: Target, stock: Target) -> Target:
    """Return the content of the slot of ``produce``.

    Args:
        produce: calls the present target.
        stock: the ``produce`` that comes after ours. A tracer's ``produce`` may look for arguments by name. So without
            the extension, all given arguments except topic and value are passed by name.
    """
    if FollowingMethod is not None or type(stock) is MethodDescriptorType:
        return produce

    def call(
        client: Any,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        called: Any,
        _: Any = None,
        timestamp: Any = 0,
        headers: Any = None,
    ) -> Any:
        given = {"key": key, "on_delivery": called, "headers": headers}
        named = {name: argument for name, argument in given.items() if argument is not None}
        if partition != -1:
            named["partition"] = partition
        if timestamp != 0:
            named["timestamp"] = timestamp
        return produce(client, topic, value, **named)

    return partial(call)


def stock_method(ours: type, of: type, name: str) -> Target:
    """Return the method ``name`` that comes after the method of ``ours`` in the MRO of ``of``: librdkafka's own, or a
    tracer's. The function takes the client as its first argument."""
    classes = of.__mro__[of.__mro__.index(ours) + 1 :]
    method = next((vars(cls)[name] for cls in classes if name in vars(cls)), None)
    # Not isinstance(): a wrapper (wrapt's) pretends to be a function.
    if type(method) in (FunctionType, MethodDescriptorType):
        return cast(Target, method)
    return lambda client, *args, **kwargs: getattr(super(ours, client), name)(*args, **kwargs)


class Stock:
    """The methods of ``client`` that come after those of ``ours``. The client is not kept alive.

    Raises:
        ReferenceError: the client no longer exists.
    """

    def __init__(self, ours: type, client: Any) -> None:
        self._ours = ours
        self._client = weakref.ref(client)

    def __getattr__(self, name: str) -> Any:
        client = self._client()
        if client is None:
            raise ReferenceError("the client no longer exists")
        return getattr(super(self._ours, client), name)


def weakly(method: Target) -> Target:
    """Return a bound method that does not keep its object alive, and returns None when the object is gone."""
    held = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        alive = held()
        return None if alive is None else alive(*args)

    return call


SINGLE_CALL_S = 0.19
"""The longest slice of ``consume`` while work is pending. From 0.2 s on, confluent_kafka makes several calls to
librdkafka. Within one call, a rebalance takes back the records of a revoked partition, as if they were never delivered.
Records of an earlier call stay in the batch, and count as delivered when the partition is revoked."""
SINGLE_TIMEOUT_S = 0.2
"""The longest timeout that confluent_kafka's ``consume`` spends in one call of librdkafka. Our ``consume`` may end a
little earlier, if it has taken records."""
_POLL_PARAMETERS = ("timeout",)
_CONSUME_PARAMETERS = ("num_messages", "timeout")


class Switch:
    """Holds ``call``, which calls the present target.

    ``call`` is a ``functools.partial`` without arguments, whose ``__setstate__`` replaces the function inside. This is
    one step under the GIL, so threads may call ``call`` meanwhile. A partial adds 30 ns to a C function; the C version
    of :data:`Forward` adds nothing.

    Attributes:
        call: the callable to hand out; always the same object.
    """

    __slots__ = ("_kept", "call")

    def __init__(self, target: Target) -> None:
        self.call: partial[Any] = Forward(target)
        # The attribute is needed: without it, partial(self.call) would unwrap the present target and keep it.
        self.call.__setstate__((target, (), {}, {"follows": True}))
        # A call under way refers to its target only through the partial, so each target is kept.
        self._kept: list[Target] = [target]

    @property
    def target(self) -> Target:
        """The present target of ``call``."""
        return self.call.func

    def point_to(self, target: Target) -> None:
        """Make every later call use ``target``. Callers pass few different targets: each is kept for good."""
        if not any(kept is target for kept in self._kept):
            self._kept.append(target)
        if self.call.func is not target:
            attributes = getattr(self.call, "__dict__", None)
            self.call.__setstate__((target, (), {}, attributes))  # type: ignore[attr-defined] # typeshed leaves it out


def idle_stats() -> Switch:
    """Return a ``stats_cb`` that does nothing, in C."""
    return Switch(len)


class PollHook:
    """Work that the polling thread does before it returns a record.

    Attributes:
        stopped: :meth:`stop` was called.
        polling: a hooked call is inside librdkafka, and may have taken records that its caller did not get yet.
        inside: the work is done within a callback of librdkafka.
        taken: records that the running ``consume`` took in earlier slices and has not returned yet.

    Args:
        poll: librdkafka's own method (or one between it and ours); the consumer is its first argument.
        consume: as ``poll``.
        act: does the work, in the polling thread; may raise, and is then called again at the next poll.
        due_s: returns when work is due even without a :meth:`call`, on the monotonic clock, or None for never.
        stats: the ``stats_cb``, as :func:`idle_stats` made it; switched with the others.
        finish: changes results in place: those of hooked calls, or of all calls while :meth:`finish_all` is in force.
            If it returns True, nothing is left of the result, and the call continues for the rest of its timeout.
        may_wait: whether taken records may wait until their batch is full. If not, the batch is returned at once.
        give_back: gets the records that a call took before it raised.
    """

    def __init__(
        self,
        poll: Target,
        consume: Target,
        act: Callable[[], None],
        due_s: Callable[[], float | None],
        stats: Switch,
        finish: Callable[[Any], bool] = lambda _result: False,
        may_wait: Callable[[list[Any]], bool] = lambda _taken: True,
        give_back: Callable[[list[Any]], None] = lambda _taken: None,
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
        self._may_wait = may_wait
        self._give_back = give_back
        self._due_s = due_s
        self._lock = InnerLock()
        self._called = False
        self._acting = False
        self.stopped = False
        self.polling = False
        self.inside = False
        self.taken: list[Any] = []
        self.poll = Switch(poll)
        self.consume = Switch(consume)
        self._stats = stats

    def call(self) -> None:
        """Make the polling thread act soon (any thread)."""
        with self._lock:
            if not self.stopped:
                self._called = True
                self._point(self._hooked)

    def finish_all(self, wanted: bool) -> None:
        """Pass every result to ``finish``, even if there is no work (any thread)."""
        with self._lock:
            was_idle = self.poll.target is self._idle[0]
            self._idle = self._finished if wanted else self._stock
            if was_idle and not self.stopped:
                self._point(self._idle)

    def stop(self) -> None:
        """Point to librdkafka's own methods for good: they raise that the consumer is closed."""
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
        """Do the due work, in the polling thread.

        A call from a callback inside the work itself does nothing.

        Returns:
            The seconds until more work is due, or None if no work waits.
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

    def _call_in_slices(
        self, method: Target, parameters: tuple[str, ...], consumer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Call ``method``, with pauses for work that is due before the timeout is over."""
        given = {**dict(zip(parameters, args, strict=False)), **kwargs}
        wait_s = self.serve()
        if len(args) > len(parameters) or not isinstance(given.get("timeout", -1.0), int | float):
            return method(consumer, *args, **kwargs)  # librdkafka refuses the call
        longest_s = SINGLE_CALL_S if parameters is _CONSUME_PARAMETERS else math.inf
        complete = False
        try:
            result = self._sliced(partial(self._polled, method, consumer), given, wait_s, longest_s)
            complete = True
            return result
        finally:
            taken, self.taken = self.taken, []
            if taken and not complete and not self.stopped:
                self._give_back(taken)

    def _sliced(self, call: Callable[..., Any], given: dict[str, Any], wait_s: float | None, longest_s: float) -> Any:
        """Return the joined results of all calls. Each call has the arguments ``given``, except timeout and count."""
        timeout, wanted = given.get("timeout", -1.0), given.get("num_messages", 1)
        is_single = 0 <= timeout <= SINGLE_TIMEOUT_S
        deadline_s = None if timeout < 0 else time.monotonic() + timeout
        while True:
            left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0.0)
            wait_s = None if wait_s is None else min(wait_s, longest_s)
            last = left_s is not None and (wait_s is None or left_s <= wait_s)
            slice_s = left_s if last else (-1.0 if wait_s is None else wait_s)
            result = call(**{**given, "timeout": slice_s})
            if self._finish(result):
                last = deadline_s is not None and time.monotonic() >= deadline_s
                result = result if isinstance(result, list) else None
            if isinstance(result, list):
                self.taken += result
                last = last or len(self.taken) >= wanted or (is_single and bool(self.taken))
                given["num_messages"] = wanted - len(self.taken)
                result = self.taken if last else None
            # Not by truth: a message without a value is false, and a tombstone would be lost.
            if last or result is not None:
                return result
            wait_s = self.serve()
            # Work that is still due, or due again, may change what the caller reads: first return what was taken.
            if self.taken and (wait_s == 0.0 or not self._may_wait(self.taken)):
                return self.taken

    def _call_finished(
        self, method: Target, parameters: tuple[str, ...], consumer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Call ``method``; if nothing is left of its result, continue for the rest of its timeout."""
        began_s = time.monotonic()
        result = method(consumer, *args, **kwargs)
        if not self._finish(result):
            return result
        given = {**dict(zip(parameters, args, strict=False)), **kwargs}
        if given.get("timeout", -1.0) >= 0:
            given["timeout"] = max(given["timeout"] - (time.monotonic() - began_s), 0.0)
        return self._call_in_slices(method, parameters, consumer, **given)

    def _polled(self, method: Target, consumer: Any, **kwargs: Any) -> Any:
        self.polling = True
        try:
            return method(consumer, **kwargs)
        finally:
            self.polling = False
