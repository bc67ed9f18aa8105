"""Nothing calls out while an inner lock is held.

A log handler, a callback or a warning filter of the application may send a record, or wait for a thread that does. If
it runs while this thread holds a lock that the send takes, and the other thread holds a lock of the application (that
of the log handler, say), both wait for ever.

So every lock of the package is an :class:`InnerLock`, every logger comes from :func:`get_logger`, and application code
is called through :func:`call_out`. What is called while this thread holds an inner lock runs in the same thread, and in
order, when the thread has released the last one.
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
    """What one thread has to do with inner locks."""

    def __init__(self) -> None:
        self.locks: list[InnerLock] = []  # a signal handler that raises may leave one here that is not held
        self.due: deque[Callable[[], object]] = deque()


_here = _Here()


class InnerLock(_Lock):  # type: ignore[misc] # its class has no public name
    """A ``threading.RLock`` that :func:`call_out` waits for. It may be the lock of a ``threading.Condition``."""

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
        except BaseException:  # Ctrl-C, say: the block that waits still holds the lock
            self._acquire_restore(state)
            raise
        return state


def is_inside() -> bool:
    """Return whether this thread holds an inner lock."""
    return any(lock._is_owned() for lock in _here.locks)


def call_out(function: Callable[..., object], *args: Any) -> None:
    """Call ``function`` now, or when this thread has released its last inner lock.

    What it raises reaches the caller if it is called now. Later, there is no caller to handle it, and it is logged.
    """
    if not is_inside():
        function(*args)
    else:
        _here.due.append(partial(_call_logged, function, args))


def _call_logged(function: Callable[..., object], args: tuple[Any, ...]) -> None:
    try:
        function(*args)
    except Exception:  # any class of the application's
        logger.exception("%s failed", getattr(function, "__qualname__", function))


def _call_due() -> None:
    if _here.due and not is_inside():
        due, _here.due = _here.due, deque()
        with ExitStack() as calls:  # what one of them raises does not silence the others
            for call in reversed(due):
                calls.callback(call)


class _Deferral(logging.Filter):
    """Holds a record of ``logger`` back until this thread holds no inner lock."""

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
        except Exception:  # noqa: BLE001 - of a handler: by now it would hide an error of the caller's
            logging.Handler().handleError(record)


def get_logger(name: str) -> logging.Logger:
    """Return the logger of that name. Its handlers are called as :func:`call_out` calls."""
    logger = logging.getLogger(name)
    if not any(isinstance(log_filter, _Deferral) for log_filter in logger.filters):
        logger.filters.insert(0, _Deferral(logger))  # a filter of the application is called once, and outside
    return logger


logger = get_logger("modeaware.clients")
