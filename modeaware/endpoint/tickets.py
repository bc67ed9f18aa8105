"""What sessions have asked of other threads: the first of an answer, a failure and the end of the time it has."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import traceback
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from modeaware.endpoint.desk import Outcome
from modeaware.endpoint.quotas import Seldom
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError

logger = logging.getLogger(__name__)


@runtime_checkable
class Expiring(Protocol):
    """A future that can be ended at its deadline with what is known by then."""

    def expire(self) -> None:
        """Begin nothing more, and have a result or an exception now."""


class Ticket:
    """Waits for ``future`` and tells ``resolve`` once, in the loop's thread, what it has come to.

    A failure is logged, one that comes too late as well. What the future stands for is never cancelled: the controller
    does not take a command back. An :class:`Expiring` future ends with its time; its commands that were not begun never
    are.

    Args:
        loop: whose thread this is.
        log: where failures are noted. Many tickets may come to one and the same.
        what: that ``future`` stands for, one of few words.
        future: set by another thread, or at once.
        timeout_s: how long it may take.
        late: what to tell when it takes longer.
        resolve: called with the outcome, unless :meth:`drop` came first.
    """

    __slots__ = ("_future", "_late", "_log", "_loop", "_resolve", "_timer", "_what")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: Seldom,
        what: str,
        future: concurrent.futures.Future[Any],
        timeout_s: float,
        late: str,
        resolve: Callable[[Outcome], None],
    ) -> None:
        self._loop = loop
        self._future: concurrent.futures.Future[Any] | None = future
        self._log = log
        self._what = what
        self._late = late
        self._resolve: Callable[[Outcome], None] | None = resolve
        self._timer = loop.call_later(timeout_s, self._too_late)
        future.add_done_callback(self._done)

    def drop(self) -> None:
        """Nobody waits any more."""
        self._resolve = self._future = None
        self._timer.cancel()

    def _done(self, future: concurrent.futures.Future[Any]) -> None:
        """In any thread."""
        try:
            self._loop.call_soon_threadsafe(self._come, future)
        except RuntimeError:
            logger.debug("an answer came after the endpoint had stopped")
            if failure := _failure(future):
                level, text = failure
                logger.log(level, "%s %s", self._what, text)

    def _come(self, future: concurrent.futures.Future[Any]) -> None:
        if failure := _failure(future):
            level, text = failure
            kind = f"{self._what} failed{' unexpectedly' * (level == logging.ERROR)}"  # one does not hide the other
            self._log.log(level, kind, "%s %s", self._what, text)
        self._tell(_outcome(future))

    def _too_late(self) -> None:
        future: object = self._future
        if isinstance(future, Expiring):
            future.expire()  # its callback has handed the outcome to the loop
            return
        self._tell(ClusterError(self._late, code=ErrorCode.REQUEST_TIMED_OUT))

    def _tell(self, outcome: Outcome) -> None:
        resolve = self._resolve
        self.drop()
        if resolve is not None:
            resolve(outcome)


def _outcome(future: concurrent.futures.Future[Any]) -> Outcome:
    if future.cancelled():
        return ClusterError("the controller has dropped it", code=ErrorCode.UNKNOWN_SERVER_ERROR)
    failure = future.exception()
    if failure is None:
        result: Outcome = future.result()
        return result
    if isinstance(failure, ModeAwareError):
        return failure
    return ClusterError(
        f"the controller failed: {type(failure).__name__}: {failure}", code=ErrorCode.UNKNOWN_SERVER_ERROR
    )


def _failure(future: concurrent.futures.Future[Any]) -> tuple[int, str] | None:
    """What to log of it."""
    if future.cancelled() or (failure := future.exception()) is None:
        return None
    if isinstance(failure, ModeAwareError):
        return logging.INFO, f"failed: {failure}"
    return logging.ERROR, "failed unexpectedly: " + "".join(traceback.format_exception(failure)).rstrip()
