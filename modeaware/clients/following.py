"""One client's share of the views, and its wait for the first view.

A *share* is a client's handle on the views (:mod:`modeaware.views.registry`). The views do not keep a client alive:
when a client is dropped without ``close()``, its share is released. If no view comes within
``modeaware.view.timeout.ms``, ``modeaware.on.unknown`` decides. Until the first view, ``block`` refuses records or
reads nothing, ``writable`` takes every partition as ReadWrite, and ``error`` raises. If no view can come any more, as
in an exit handler, ``block`` acts like ``writable`` at once.
"""

from __future__ import annotations

import _thread
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple, NoReturn

from modeaware.callouts import InnerLock, get_logger
from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError, PartitionRetired, ViewTimeout
from modeaware.topic_view import TopicView
from modeaware.views import registry
from modeaware.views.source import ViewListener, Views

log = get_logger(__name__)


class ClientErrors(NamedTuple):
    """A client library's own exception classes."""

    retired: type[PartitionRetired] = PartitionRetired
    pending: type[ModeSourceError] = ModeSourceError
    timeout: type[ViewTimeout] = ViewTimeout


@contextmanager
def acquired(conf: Mapping[str, Any], config: ClientConfig) -> Iterator[Views]:
    """Acquire a share of the views for a client's constructor. If the ``with`` block raises, release the share.

    The application's resize callback is left out: the source of the views outlives the client, and must not keep the
    callback's objects alive.
    """
    views = registry.acquire(conf, config)
    with ExitStack() as undo:
        undo.callback(views.close)
        yield views
        undo.pop_all()


class ViewShare:
    """Calls the method ``follow`` with changed views, until ``client`` is dropped or has released its share.

    The share keeps neither the client nor the method's object alive.
    """

    def __init__(self, client: object, views: Views, follow: Callable[[Mapping[str, TopicView]], object]) -> None:
        method = weakref.WeakMethod(follow)

        def listener(changed: Mapping[str, TopicView]) -> None:
            following = method()
            if following is not None:
                following(changed)

        self._views = views
        self._listener = listener
        self._finalizer = weakref.finalize(client, abandon, partial(_release, views, listener), os.getpid())
        self._finalizer.atexit = False  # the registry of sources ends them at exit
        views.subscribe(listener)

    def release(self) -> None:
        """Release the views; the last ones stay in force. Idempotent."""
        if self._finalizer.detach() is not None:
            _release(self._views, self._listener)


def _release(views: Views, listener: ViewListener) -> None:
    views.unsubscribe(listener)
    views.close()


def abandon(release: Callable[[], None], pid: int) -> None:
    """Call ``release`` for a client that was dropped without ``close()`` in the process ``pid``.

    The garbage collector may run this function in any thread and at any point, so it must take no lock. A new thread
    calls ``release``. A forked child does not release its parent's share.
    """
    if os.getpid() != pid:
        return
    try:
        _thread.start_new_thread(release, ())
    except RuntimeError as error:
        log.debug("views not released: the interpreter is exiting: %s", error)


class FirstView:
    """The wait for the first view, until one deadline for all calls of a client. Any thread may call.

    Args:
        wait: waits up to a number of seconds for the first view, and returns whether the client has followed it.
        views: the client's handle of the views.

    Attributes:
        over: calls may proceed: the view has come, or every partition is taken as ReadWrite until the view comes.
    """

    def __init__(
        self,
        config: ClientConfig,
        wait: Callable[[float], bool],
        views: Views,
        errors: ClientErrors,
    ) -> None:
        self._config = config
        self._wait = wait
        self._views = views
        self._errors = errors
        self._lock = InnerLock()
        self._deadline_s: float | None = None
        self.over = False

    def wait(self) -> None:
        """Return when calls may proceed.

        Raises:
            ClientErrors.pending: no view in time, and ``on_unknown`` is ``block``.
            ClientErrors.timeout: no view in time, and ``on_unknown`` is ``error``.
        """
        if not self.over and not self.arrived():
            self._refuse()

    def arrived(self, at_most_s: float | None = None) -> bool:
        """Wait until the deadline, or for ``at_most_s``. Return whether calls may proceed. With ``block``, calls
        proceed only with a view, or if no view can come any more.

        Raises:
            ClientErrors.timeout: the deadline has passed or no view can come, and ``on_unknown`` is ``error``.
        """
        wait_s = self.left_s() if at_most_s is None else at_most_s
        if self.over or self._wait(0.0 if self._views.ended else wait_s):
            self.over = True
        elif self._views.ended or (not self.left_s() and self._config.on_unknown != "block"):
            if self._config.on_unknown == "error":
                self._refuse()
            self.over = True
            log.warning("%s; taking every partition as ReadWrite until a view arrives", self._message())
        return self.over

    def left_s(self) -> float:
        """Return the seconds until the deadline, or 0 when it has passed. If no wait has begun, begin one."""
        with self._lock:
            deadline_s = self.begin() if self._deadline_s is None else self._deadline_s
        return max(deadline_s - time.monotonic(), 0.0)

    def begin(self) -> float:
        """Begin a wait, and return its deadline on the monotonic clock. :meth:`left_s` calls this if necessary."""
        self.over, self._deadline_s = False, time.monotonic() + self._config.view_timeout_ms / 1000
        return self._deadline_s

    def _refuse(self) -> NoReturn:
        if self._config.on_unknown == "error":
            raise self._errors.timeout(f"{self._message()}; nothing was queued or read")
        raise self._errors.pending(f"{self._message()}; nothing was queued, try again")

    def _message(self) -> str:
        if self._views.ended:
            return (
                "no view of the partition modes arrived, and none will: the interpreter is exiting, or the "
                "client is closing"
            )
        return (
            f"no view of the partition modes within {self._config.view_timeout_ms} ms (modeaware.view.timeout.ms): "
            f"{self._views.error() or 'the mode log was not read to its end yet'}"
        )
