"""Application code and log handlers run only while their thread holds no lock of this package.

A log handler, a callback or a warning filter of the application may send a Kafka record, or wait for a thread that
sends one. A send takes a lock of this package, and a log handler takes a lock of its own. If two threads take these two
locks in opposite order, they wait for each other for ever.

So every lock of the package is an :class:`InnerLock`, every logger comes from :func:`get_logger`, and application code
is called through :func:`call_out`. A call by a thread that holds an inner lock is deferred: deferred calls run in that
thread, in order, when the thread has released its last inner lock. A call whose result is needed cannot be deferred,
for example that of an application's partitioner. Sends call the partitioner while they hold no inner lock. Reports of
resizes call it, too, but these reports are deferred.

One call is made under a lock: ``oauth_cb`` of a connection to a controller's endpoint. The connection needs a token.
Every wait for that lock has a limit.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

_Lock: Any = type(threading.RLock())


class _Here(threading.local):
    """The inner locks and the deferred calls of one thread."""

    def __init__(self) -> None:
        self.locks: list[InnerLock] = []  # may have a lock that is not held, after a signal handler has raised
        self.due: deque[Callable[[], object]] = deque()


_here = _Here()


class InnerLock(_Lock):  # type: ignore[misc] # its class has no public name
    """A ``threading.RLock`` whose last release runs deferred calls. A ``threading.Condition`` may use this lock."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        _here.locks.append(self)
        taken: bool = False
        try:
            taken = super().acquire(blocking, timeout)
        finally:
            if not taken:
                _here.locks.remove(self)
        return taken

    __enter__ = acquire

    def release(self) -> None:
        super().release()
        _here.locks.remove(self)
        _call_due()

    def __exit__(self, *exception: object) -> None:
        self.release()

    def _release_save(self) -> Any:
        """Release the lock for the wait of a ``threading.Condition``."""
        state = super()._release_save()
        try:
            _call_due()
        except BaseException:  # Ctrl-C, for example: the block that waits expects to hold the lock
            self._acquire_restore(state)
            raise
        return state


def is_inside() -> bool:
    """Return whether this thread holds an inner lock."""
    return any(lock._is_owned() for lock in _here.locks)


def call_out(function: Callable[..., object], *args: Any) -> None:
    """Call ``function`` now, or, if this thread holds inner locks, when the thread has released the last of them.

    An exception of an immediate call propagates. A deferred call has no caller, so its exception is logged.
    """
    if not is_inside():
        function(*args)
    else:
        _here.due.append(partial(_call_logged, function, args))


def _call_logged(function: Callable[..., object], args: tuple[Any, ...]) -> None:
    try:
        function(*args)
    except Exception:  # the application may raise any class
        logger.exception("%s failed", getattr(function, "__qualname__", function))


def _call_due() -> None:
    if _here.due and not is_inside():
        due, _here.due = _here.due, deque()
        with ExitStack() as calls:  # an exception of one call does not skip the others
            for call in reversed(due):
                calls.callback(call)


class _Deferral(logging.Filter):
    """Defers a record of ``logger`` until this thread holds no inner lock."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self._logger = logger

    def filter(self, record: logging.LogRecord) -> bool:
        if not is_inside():
            return True
        _here.due.append(partial(self._handle, record))
        return False

    def _handle(self, record: logging.LogRecord) -> None:
        try:
            self._logger.handle(record)
        except Exception:  # noqa: BLE001 - a handler's exception must not hide an exception of the caller
            logging.Handler().handleError(record)


def get_logger(name: str) -> logging.Logger:
    """Return the logger ``name``. Its handlers run at the time at which :func:`call_out` would call them."""
    logger = logging.getLogger(name)
    if not any(isinstance(log_filter, _Deferral) for log_filter in logger.filters):
        logger.filters.insert(0, _Deferral(logger))  # first: the application's filters run once, without locks
    return logger


logger = get_logger("modeaware.clients")
