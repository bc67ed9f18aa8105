"""Commands on their way to the controller's thread."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress

from modeaware.errors import ControllerUnavailable, ErrorCode, ModeAwareError
from modeaware.lifecycle.commands import Command, CommandResult

MAX_WAITING = 1_000
_Results = list[CommandResult]
_Job = tuple[Sequence[Command], "Future[list[CommandResult]]"]


class Inbox:
    """A queue of commands. Any thread puts them in, the controller's thread takes them out and answers."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[_Job | None] = queue.Queue(MAX_WAITING)

    def put(self, commands: Sequence[Command]) -> Future[_Results]:
        """Leave commands; the future gives one result per command, in order.

        It may give instead:
            ControllerUnavailable: nothing was done.
            ControllerFenced, ClusterError: what was done of it is on the log, or not.
        """
        future: Future[_Results] = Future()
        try:
            self._jobs.put_nowait((commands, future))
        except queue.Full:
            future.set_exception(
                ControllerUnavailable("too many commands are waiting: try again", code=ErrorCode.REQUEST_TIMED_OUT)
            )
        return future

    def wake(self) -> None:
        """End :meth:`take`'s wait."""
        with suppress(queue.Full):  # then there is something to wake up for already
            self._jobs.put_nowait(None)

    def take(self, wait_s: float) -> Job | None:
        """The next commands, within ``wait_s`` seconds; None when there are none, or when woken."""
        try:
            job = self._jobs.get(timeout=wait_s) if wait_s > 0 else self._jobs.get_nowait()
        except queue.Empty:
            return None
        return Job(*job) if job is not None else None

    @property
    def empty(self) -> bool:
        return self._jobs.empty()

    def refuse_all(self, reason: str) -> None:
        """Answer everything that waits with ControllerUnavailable."""
        while not self.empty:
            job = self.take(0)
            if job is not None:
                job.refuse(ControllerUnavailable(reason))


class Job:
    """Commands that were taken out, to be answered once."""

    def __init__(self, commands: Sequence[Command], future: Future[_Results]) -> None:
        self._commands = commands
        self._future = future

    def carry_out(
        self, execute: Callable[[Command], CommandResult], before_answering: Callable[[_Results], None] | None = None
    ) -> None:
        """Execute the commands in order and answer.

        Args:
            before_answering: called with the results; what it raises is the answer instead.

        Raises:
            ModeAwareError: an execution failed; whoever waits for the answer gets it too.
        """
        if not self._future.set_running_or_notify_cancel():
            return
        try:
            results = [execute(command) for command in self._commands]
            if before_answering is not None:
                before_answering(results)
        except ModeAwareError as error:
            self._future.set_exception(error)
            raise
        else:
            self._future.set_result(results)
        finally:
            if not self._future.done():
                self._future.set_exception(ControllerUnavailable("this controller has stopped on an unexpected error"))

    def refuse(self, error: ModeAwareError) -> None:
        """Answer with ``error``: nothing was done."""
        if self._future.set_running_or_notify_cancel():
            self._future.set_exception(error)
