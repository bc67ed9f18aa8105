"""The interface between sessions and the controller process: the state that sessions read, and their actions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from modeaware.lifecycle.commands import Command, CommandResult
from modeaware.topic_view import TopicView

SERVE, REFUSE = "serve", "refuse"
"""The values of ``modeaware.old.clients``: the response to a Metadata request below KIP-694's version, about a topic
with a partition that takes no writes. With ``serve`` the client gets the broker's response; with ``refuse``,
LEADER_NOT_AVAILABLE (KIP-694, Compatibility)."""
REFRESH_TIMEOUT_S = 10.0
"""The time limit for reading the mode log to its end, and for a session that waits for this."""


@dataclass(frozen=True)
class ActiveController:
    """The controller of the claim in force. If it has stopped or takes no commands, ``host`` is None and ``port`` 0."""

    controller_id: str
    host: str | None = None
    port: int = 0


class ControllerView(Protocol):
    """The controller's state for sessions. Methods are called in the endpoint's thread, do no IO and return at once.

    Until the mode log has been read to its end once, every method may raise
    :class:`~modeaware.errors.ModeSourceError`. The session then closes its connection, and the client retries.
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
        """Return the view of ``topic``, or ``TopicView.unlisted(topic)`` if there is no record."""

    def records(self) -> Mapping[str, TopicView]:
        """Return the views of all topics that have a record, by name."""

    def removed(self, topic_ids: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``topic_ids`` whose record was removed."""

    def version(self) -> Hashable:
        """Return a value that changes whenever a view changes, and never repeats."""

    def claim(self) -> ActiveController | None:
        """Return the controller of the claim in force, or None if no claim is known."""

    def is_active(self) -> bool:
        """Return whether this endpoint's own controller is active, by the latest claim that it has read."""


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

    ``timeout_ms`` (0 to 600000) limits the time to the response. After that time no further command begins; each that
    has not begun gets the result THROTTLING_QUOTA_EXCEEDED. A running command is not cancelled. A closed session needs
    no outcome.
    """

    ticket: int
    commands: tuple[Command, ...]
    timeout_ms: int


@dataclass(frozen=True)
class Refresh:
    """Read the mode log to its end, then call ``ClientSession.resolved(ticket, None or error)``.

    One read may serve several tickets, if the read begins after the Refresh of each ticket.
    """

    ticket: int


@dataclass(frozen=True)
class Close:
    """Close both connections, once all earlier actions are carried out. Always a session's last action.

    ``reason`` is for the log, and never contains a part of a frame.
    """

    reason: str


Action = ToClient | ToUpstream | Submit | Refresh | Close
Outcome = list[CommandResult] | Exception | None
"""The outcome: of a Submit, the results of its commands, in order, or an error; of a Refresh, None or an error."""
