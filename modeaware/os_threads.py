"""Blocking calls into C, also in a process whose threads are greenlets.

gevent and eventlet replace threads by greenlets. Our helper threads are then greenlets as well, so locks, events,
loggers and callbacks work as everywhere in that process. But librdkafka's calls block in C: a greenlet that makes such
a call would stop all other greenlets. So the call runs in a thread of the operating system. Meanwhile the greenlet
waits at a socket for the end of the call, and other greenlets run. The thread runs only the call, and takes no lock of
this package.
"""

from __future__ import annotations

import _thread
import math
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib.util import find_spec, module_from_spec
from types import BuiltinFunctionType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

POLL_S = 0.005
_PARKED_S = 3600.0


def _unpatched() -> Any:
    """Return another instance of the module ``_thread``, with the interpreter's own functions, not gevent's."""
    spec = find_spec("_thread")
    assert spec is not None, "it is built in"
    assert spec.loader is not None, "it is built in"
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


_os_thread = _unpatched()


def are_greenlets() -> bool:
    """Return whether ``threading`` starts greenlets instead of threads."""
    return not isinstance(_thread.start_new_thread, BuiltinFunctionType)


class NoThread(RuntimeError):
    """No thread can be started: there are too many, or the interpreter is exiting."""


def call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``function``, which may block in C, and return its result. Any thread or greenlet may call.

    Raises:
        NoThread: a greenlet has called, and no thread can be started.
    """
    if not are_greenlets():
        return function(*args, **kwargs)
    pid = os.getpid()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        done = os.dup(theirs.fileno())

        def wake() -> None:
            with suppress(BrokenPipeError):  # the greenlet was killed meanwhile
                os.write(done, b"\0")
            os.close(done)

        try:
            outcome = _start(partial(function, *args, **kwargs), wake)
        except NoThread:
            os.close(done)
            raise
        ours.recv(1, socket.MSG_PEEK)  # only peek: a forked child has the same socket, and the parent needs the byte
    end_in_child_of(pid)
    return outcome()


def call_apart(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``function`` in another thread, and return its result. No greenlet runs meanwhile, so callbacks from C may
    use this function, too.

    Raises:
        NoThread: no thread can be started.
    """
    done = _os_thread.allocate_lock()
    done.acquire()
    outcome = _start(partial(function, *args, **kwargs), done.release)
    done.acquire()
    return outcome()


def _start(function: Callable[[], T], wake: Callable[[], object]) -> Callable[[], T]:
    """Run ``function``, then ``wake``, in an OS thread. Return a getter of the outcome, to call after ``wake``."""
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(function())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            failure.append(error)
        wake()

    def outcome() -> T:
        if failure:
            raise failure.pop()  # pop, because the traceback refers to this frame
        return result[0]

    try:
        _os_thread.start_new_thread(run, ())
    except RuntimeError as error:
        raise NoThread(str(error)) from error
    return outcome


def end_in_child_of(pid: int) -> None:
    """Never return in a process other than ``pid``. After a fork, all greenlets continue in the child. There the helper
    greenlets of the parent must not use the parent's connections."""
    while os.getpid() != pid:
        time.sleep(_PARKED_S)  # for ever


class Polled(Future[T]):
    """A future for greenlets that a thread of the operating system fulfils. Such a thread cannot wake greenlets.

    The locks of greenlets work within one thread only. So the inner future is read only once it is fulfilled: no thread
    locks it any more.
    """

    def __init__(self, future: Future[T]) -> None:
        super().__init__()
        self._future = future
        self._fulfilled: list[Future[T]] = []
        future.add_done_callback(self._fulfilled.append)

    def done(self) -> bool:
        return bool(self._fulfilled)

    def result(self, timeout: float | None = None) -> T:
        self._wait(timeout)
        return self._future.result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return self._future.exception(0)

    def _wait(self, timeout_s: float | None) -> None:
        deadline_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not self._fulfilled:
            if time.monotonic() >= deadline_s:
                raise TimeoutError
            time.sleep(POLL_S)  # other greenlets run meanwhile


def awaitable(future: Future[T]) -> Future[T]:
    """Return ``future``, which a thread of librdkafka fulfils, in a form that threads and greenlets may wait for."""
    return Polled(future) if are_greenlets() else future
