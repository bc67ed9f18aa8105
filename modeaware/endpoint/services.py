"""What the connections of an endpoint share."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeaware.endpoint.limits import Limits
from modeaware.endpoint.link import RECEIVE_BYTES
from modeaware.endpoint.quotas import Held, Places, Quotas, Seldom
from modeaware.endpoint.session import Session
from modeaware.endpoint.upstream import Upstream
from modeaware.lifecycle.commands import Command, CommandResult

if TYPE_CHECKING:
    from modeaware.endpoint.connection import Connection

SubmitCommands = Callable[[Sequence[Command], int], "concurrent.futures.Future[list[CommandResult]]"]
"""Hands commands to the controller, with the time in ms they may take. Called in the loop's thread: must not block."""
RefreshViews = Callable[[], "concurrent.futures.Future[None]"]
"""Has the mode log read to where it ends now. Called in the loop's thread: must not block."""


@dataclass(frozen=True)
class Services:
    """All used in the loop's thread alone.

    Attributes:
        connections: those that have a place.
        room: where all links receive.
    """

    loop: asyncio.AbstractEventLoop
    new_session: Callable[[], Session]
    upstream: Upstream
    tls: ssl.SSLContext | None
    limits: Limits
    quotas: Quotas
    submit: SubmitCommands
    refresh: RefreshViews
    held: Held[Connection]
    places: Places
    log: Seldom
    connections: set[Connection] = field(default_factory=set)
    room: memoryview = field(default_factory=lambda: memoryview(bytearray(RECEIVE_BYTES)))
