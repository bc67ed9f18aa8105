"""What a session asks of the controller process, and what it wants done. Both sides of this seam are free of IO."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from modeaware.lifecycle.commands import Command, CommandResult
from modeaware.topic_view import TopicView

SERVE, REFUSE = "serve", "refuse"
"""``modeaware.old.clients``: what a Metadata request below KIP-694's version is answered for a topic with a retired
partition: the broker's own answer, or LEADER_NOT_AVAILABLE (KIP-694, Compatibility)."""


@dataclass(frozen=True)
class ActiveController:
    """Whoever made the claim in force.

    Attributes:
        controller_id: its name.
        host, port: where clients reach it; None and 0 when it has stopped or takes no commands.
    """

    controller_id: str
    host: str | None = None
    port: int = 0


class Desk(Protocol):
    """What a session may ask. Called in the endpoint's thread; answers at once and does no IO.

    Every method may raise :class:`~modeaware.errors.ModeSourceError` while the mode log has not been read to its end
    once: the connection is closed then, and its client tries again.
    """

    @property
    def controller_id(self) -> str:
        """The name of this endpoint's own controller."""

    @property
    def advertised(self) -> tuple[str, int]:
        """Host and port by which clients reach this endpoint."""

    @property
    def old_clients(self) -> str:
        """:data:`SERVE` or :data:`REFUSE`."""

    def views(self, topic: str) -> TopicView:
        """What is known of ``topic``; ``TopicView.unlisted(topic)`` where no record exists."""

    def records(self) -> Mapping[str, TopicView]:
        """The views of all topics that have a record, by name."""

    def removed(self, topic_ids: Iterable[str]) -> tuple[str, ...]:
        """Those of the topics whose record was taken back."""

    def version(self) -> Hashable:
        """Changes whenever any view does; never the same again."""

    def claim(self) -> ActiveController | None:
        """Whoever made the claim in force; None when nobody is known."""

    def is_active(self) -> bool:
        """Whether this endpoint's own controller is the active one, as far as it knows."""


@dataclass(frozen=True)
class ToClient:
    """Send this frame (without its length) to the client."""

    payload: bytes = field(repr=False)  # may hold credentials, and never belongs into a log


@dataclass(frozen=True)
class ToUpstream:
    """Send this frame (without its length) to the broker."""

    payload: bytes = field(repr=False)


@dataclass(frozen=True)
class Submit:
    """Hand these commands to the controller, and call ``Session.resolved(ticket, results or error)``.

    ``timeout_ms`` (0 to 600000): how long the answer may take; after that no further command is begun, and those that
    were not begun are answered with THROTTLING_QUOTA_EXCEEDED. A command that runs is not taken back. Nothing is owed
    once the session is closed.
    """

    ticket: int
    commands: tuple[Command, ...]
    timeout_ms: int


REFRESH_TIMEOUT_S = 10.0
"""How long a reading may take, and how long it is waited for."""


@dataclass(frozen=True)
class Refresh:
    """Read the mode log to its end, and call ``Session.resolved(ticket, None or error)``.

    One reading that begins after it may serve any number of tickets.
    """

    ticket: int


@dataclass(frozen=True)
class Close:
    """Send what stands before it, then close both connections. Always the last action of a session.

    ``reason`` is for the log: it never holds anything of a frame's content.
    """

    reason: str


Action = ToClient | ToUpstream | Submit | Refresh | Close
Outcome = list[CommandResult] | Exception | None
"""What a Submit (results, one per command, in order; or an error) or a Refresh (None or an error) has come to."""
