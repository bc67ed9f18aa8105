"""Commands on their way to the controller's thread, and the outcome of each.

A request may name hundreds of topics. Its commands are executed in slices; between slices, other requests, due checks
and the election get their turn. So a deadline, or a stop of the controller, may end a request between two slices.
The answer then states for each command whether it was executed, was never begun, or has an unknown outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Condition

from modeaware.callouts import InnerLock
from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.errors import ClusterError, ControllerUnavailable, ErrorCode, ModeAwareError
from modeaware.lifecycle.commands import Command, CommandResult

MAX_WAITING = 1_000
NOT_BEGUN = ErrorCode.THROTTLING_QUOTA_EXCEEDED
"""The code of a command that was not begun: retriable, and nothing was done (as in KIP-599)."""
_Results = list[CommandResult]
_UNPROVED = ControllerUnavailable("the brokers do not confirm that this is the active controller; nothing was changed")


class Job(Future[_Results]):
    """The commands of one request, and the future of their results: one per command, in order.

    The controller's thread begins and ends commands; :meth:`expire` may be called from any thread. If all commands
    failed with one common error, the future raises this error.

    Args:
        deadline_s: from this time on no command is begun (``Clock.monotonic_s``); None if there is no deadline.

    Attributes:
        in_command: the number of commands that were begun and have no outcome yet.
    """

    def __init__(self, commands: Sequence[Command], deadline_s: float | None = None) -> None:
        super().__init__()
        self._commands = tuple(commands)
        self._deadline_s = deadline_s
        self._outcomes: list[CommandResult | ModeAwareError] = []
        self._unproved: set[int] = set()
        self.in_command = 0
        self._lock = InnerLock()

    def begin(self, now_s: float, most: int = 1) -> Sequence[Command]:
        """Begin the next commands: at most ``most``, each on another topic.

        If no command is left, return none; :meth:`finish` then answers the job. After the deadline, answer the job and
        return none.
        """
        with self._lock:
            if self.complete or not self._start():
                return ()
            if self._deadline_s is not None and now_s >= self._deadline_s:
                self.expire()
                return ()
            first, topics = len(self._outcomes), set()
            for command in self._commands[first : first + most]:
                if command.topic in topics:
                    break
                topics.add(command.topic)
            self.in_command = len(topics)
            return self._commands[first : first + len(topics)]

    def end(
        self, outcomes: Sequence[CommandResult | ModeAwareError], *, unknown: bool = False, proved: bool = True
    ) -> None:
        """Note the outcomes of the commands that were begun.

        Args:
            unknown: whether the commands failed, but may have been carried out. They are then answered with
                REQUEST_TIMED_OUT.
            proved: whether it is certain that no later controller was elected before these outcomes. A success that
                never becomes certain (:meth:`prove`) is answered as a refusal.
        """
        with self._lock:
            self.in_command = 0
            for outcome in outcomes:
                if not proved and isinstance(outcome, CommandResult) and outcome.code is ErrorCode.NONE:
                    self._unproved.add(len(self._outcomes))
                # An unknown outcome does not keep its error's code: some codes mean that nothing was done.
                self._outcomes.append(_outcome_unknown(str(outcome)) if unknown else outcome)

    def prove(self) -> None:
        """Mark every outcome up to now as the active controller's."""
        with self._lock:
            self._unproved.clear()

    @property
    def proved(self) -> bool:
        return not self._unproved

    def drop_unproved(self) -> None:
        """Turn unproved outcomes into refusals: a later claim proves nothing about earlier outcomes."""
        with self._lock:
            for number in self._unproved:
                self._outcomes[number] = _UNPROVED
            self._unproved.clear()

    @property
    def complete(self) -> bool:
        """Return whether every command has an outcome, or the job was answered earlier."""
        return self.done() or len(self._outcomes) == len(self._commands)

    def finish(self) -> None:
        with self._lock:
            if not self.done() and self._start():
                self._answer(self._outcomes)

    def refuse(self, error: ModeAwareError) -> None:
        """Answer now. Commands that were not begun fail with ``error``: nothing was done."""
        with self._lock:
            if self.done() or not self._start():
                return
            outcomes = list(self._outcomes)
            outcomes += [_outcome_unknown("not done before the request's deadline")] * self.in_command
            self._answer([*outcomes, *[error] * (len(self._commands) - len(outcomes))])

    def expire(self) -> None:
        """Answer at the deadline: no further command is begun."""
        text = "not begun before the request's deadline: nothing was changed; send the request again"
        self.refuse(ClusterError(text, code=NOT_BEGUN))

    def _start(self) -> bool:
        """Return whether the job may begin: its future was not cancelled."""
        return self.running() or self.set_running_or_notify_cancel()

    def _answer(self, outcomes: Sequence[CommandResult | ModeAwareError]) -> None:
        outcomes = [_UNPROVED if number in self._unproved else outcome for number, outcome in enumerate(outcomes)]
        first = outcomes[0] if outcomes else None
        if isinstance(first, ModeAwareError) and all(outcome is first for outcome in outcomes):
            self.set_exception(first)
            return
        self.set_result([self._as_result(number, outcome) for number, outcome in enumerate(outcomes)])

    def _as_result(self, number: int, outcome: CommandResult | ModeAwareError) -> CommandResult:
        if isinstance(outcome, CommandResult):
            return outcome
        return CommandResult(self._commands[number].topic, outcome.code or NOT_BEGUN, str(outcome))


def _outcome_unknown(what: str) -> ClusterError:
    return ClusterError(
        f"{what}; the command may have been carried out: describe the topic before sending the request again",
        code=ErrorCode.REQUEST_TIMED_OUT,
    )


class Inbox:
    """A queue of jobs. Any thread puts commands in; the controller's thread takes jobs out."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._jobs: deque[Job] = deque()
        self._changed = Condition(InnerLock())
        self._woken = False

    def put(self, commands: Sequence[Command], timeout_ms: int = 0) -> Job:
        """Queue commands; the future returns one result per command, in order."""
        job = Job(commands, self._clock.monotonic_s() + timeout_ms / 1000 if timeout_ms else None)
        with self._changed:
            if len(self._jobs) < MAX_WAITING:
                self._jobs.append(job)
                self._changed.notify()
                return job
        job.refuse(ControllerUnavailable("too many commands are waiting; retry", code=NOT_BEGUN))
        return job

    def put_back(self, job: Job) -> None:
        """Queue an incomplete job once more, behind all other jobs."""
        with self._changed:
            self._jobs.append(job)

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify()

    def take(self, wait_s: float) -> Job | None:
        """Return the next job. Return None if no job arrives within ``wait_s`` seconds, or before a :meth:`wake`."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._woken, max(wait_s, 0.0))
            self._woken = False
            return self._jobs.popleft() if self._jobs else None

    @property
    def empty(self) -> bool:
        return not self._jobs

    def refuse_all(self, reason: str) -> None:
        """Answer all jobs: commands that were not begun fail with ControllerUnavailable."""
        while (job := self.take(0)) is not None:
            job.refuse(ControllerUnavailable(reason))
