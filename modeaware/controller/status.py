"""What a controller is at the moment, for those who wait for it."""

from __future__ import annotations

import threading
from enum import Enum


class Role(Enum):
    """``STARTING``: not known yet. ``ACTIVE``: it has claimed the mode log. ``STANDBY``: another one is active, or an
    election is under way. ``STOPPED``: by :meth:`Controller.stop`, or by a failure."""

    STARTING = "starting"
    ACTIVE = "active"
    STANDBY = "standby"
    STOPPED = "stopped"


class Status:
    """A controller's role. Written by its thread, read and waited for by any.

    Attributes:
        stopping: set by whoever wants it to stop.
        trouble: the last thing that went wrong while it was starting, for whoever gives up waiting; None: nothing.
        round_s: when its thread last went round (``Clock.monotonic_s``); None: it has not begun to.
        contact_s: when it last was sure of its place in the election while active, or read the mode log to its end
            while standing by; None: not yet.
        log_failures: how often the mode log had to be claimed again, because of an error.
        takeovers: how often it has become active; claiming again while it is counts for nothing.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._role = Role.STARTING
        self._epoch: int | None = None
        self._failure: BaseException | None = None
        self.stopping = threading.Event()
        self.trouble: str | None = None
        self.round_s: float | None = None
        self.contact_s: float | None = None
        self.log_failures = 0
        self.takeovers = 0

    @property
    def role(self) -> Role:
        return self._role

    @property
    def epoch(self) -> int | None:
        """The epoch of its claim while it is active."""
        return self._epoch

    @property
    def failure(self) -> BaseException | None:
        """Why it has stopped by itself."""
        return self._failure

    def become(self, role: Role, epoch: int | None = None) -> bool:
        """Note a new role. Returns whether it is another one than before."""
        with self._changed:
            changed = (role, epoch) != (self._role, self._epoch)
            self.takeovers += role is Role.ACTIVE and self._role is not Role.ACTIVE
            self._role, self._epoch = role, epoch
            self._changed.notify_all()
        return changed

    def fail(self, error: BaseException) -> None:
        """It stops, because of ``error``."""
        with self._changed:
            self._failure = error
        self.become(Role.STOPPED)

    def wait(self, *roles: Role, timeout_s: float | None = None) -> bool:
        """Wait until it has one of these roles. Returns whether it has (it may have stopped instead).

        Raises:
            The failure, if it stops by one.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._role in (*roles, Role.STOPPED), timeout_s)
            if self._failure is not None:
                raise self._failure
            return self._role in roles
