"""The interface between sessions and the controller process: the state that sessions read, and their actions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from modeaware.lifecycle.commands import Command, CommandResult
from modeaware.topic_view import TopicView

SERVE, REFUSE = "serve", "refuse"
"""``modeaware.old.clients``: how to answer Metadata requests below KIP-694's version about a topic with a retired
partition: with the broker's response, or with LEADER_NOT_AVAILABLE (KIP-694, Compatibility)."""
REFRESH_TIMEOUT_S = 10.0
"""The time limit of a read of the mode log, and of a session's wait for it."""


@dataclass(frozen=True)
class ActiveController:
    """The controller of the claim in force; ``host`` None and ``port`` 0: it has stopped or takes no commands."""

    controller_id: str
    host: str | None = None
    port: int = 0


class ControllerView(Protocol):
    """The controller's state for sessions. Called in the endpoint's thread; returns at once and does no IO.

    Every method may raise :class:`~modeaware.errors.ModeSourceError` until the mode log has been read to its end once:
    then the connection is closed, and its client retries.
    """

    @property
    def controller_id(self) -> str:
        """Return the name of this endpoint's own controller."""

    @property
    def advertised(self) -> tuple[str, int]:
        """Return host and port by which clients reach this endpoint."""

    @property
    def old_clients(self) -> str:
        """Return :data:`SERVE` or :data:`REFUSE`."""

    def views(self, topic: str) -> TopicView:
        """Return the view of ``topic``; ``TopicView.unlisted(topic)`` if no record exists."""

    def records(self) -> Mapping[str, TopicView]:
        """Return the views of all topics that have a record, by name."""

    def removed(self, topic_ids: Iterable[str]) -> tuple[str, ...]:
        """Return the topic ids among these whose record was removed."""

    def version(self) -> Hashable:
        """Return a value that changes whenever any view does, and never repeats."""

    def claim(self) -> ActiveController | None:
        """Return the controller of the claim in force; None when none is known."""

    def is_active(self) -> bool:
        """Return whether this endpoint's own controller is the active one, by the latest claim it has read."""


@dataclass(frozen=True)
class ToClient:
    """Send this frame (without its length) to the client."""

    payload: bytes = field(repr=False)  # may hold credentials, which must not be logged


@dataclass(frozen=True)
class ToUpstream:
    """Send this frame (without its length) to the broker."""

    payload: bytes = field(repr=False)


@dataclass(frozen=True)
class Submit:
    """Submit these commands to the controller, then call ``ClientSession.resolved(ticket, results or error)``.

    ``timeout_ms`` (0 to 600000): how long the response may take. After that no further command is begun, and commands
    that were not begun have the result THROTTLING_QUOTA_EXCEEDED. A running command is not cancelled. Once the session
    is closed, its outcome is not needed.
    """

    ticket: int
    commands: tuple[Command, ...]
    timeout_ms: int


@dataclass(frozen=True)
class Refresh:
    """Read the mode log to its end, then call ``ClientSession.resolved(ticket, None or error)``.

    One read that begins after the action may serve any number of tickets.
    """

    ticket: int


@dataclass(frozen=True)
class Close:
    """Send the actions before it, then close both connections. Always a session's last action.

    ``reason`` is for the log: it never contains any content of a frame.
    """

    reason: str


Action = ToClient | ToUpstream | Submit | Refresh | Close
Outcome = list[CommandResult] | Exception | None
"""The outcome of a Submit (results, one per command, in order; or an error) or a Refresh (None or an error)."""
