"""A real endpoint with a stand-in for the controller behind it, and one for the broker that says who may do what."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from modeaware.endpoint.server import Server
from modeaware.endpoint.upstream import Upstream
from modeaware.lifecycle.commands import Command, CommandResult
from modeaware.modes import PartitionMode
from tests.support import conversation, endpoint

RW, RO = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY


class StubController:
    """Takes commands as a controller does.

    Attributes:
        answer: makes a command's result: two partitions, one of them retired, unless a test says otherwise.
        silent: commands are left open.
        submitted: what came, with its timeout in ms; ``commands``: the same, one by one.
        refreshes: how often the mode log was to be read.
    """

    def __init__(self) -> None:
        self.answer: Callable[[Command], CommandResult] = lambda command: CommandResult(command.topic, modes=(RW, RO))
        self.silent = False
        self.submitted: list[tuple[Sequence[Command], int]] = []
        self.refreshes = 0

    @property
    def commands(self) -> list[Command]:
        return [command for commands, _ in self.submitted for command in commands]

    def submit(self, commands: Sequence[Command], timeout_ms: int) -> Future[list[CommandResult]]:
        self.submitted.append((list(commands), timeout_ms))
        future: Future[list[CommandResult]] = Future()
        if not self.silent:
            future.set_result([self.answer(command) for command in commands])
        return future

    def refresh(self) -> Future[None]:
        self.refreshes += 1
        future: Future[None] = Future()
        future.set_result(None)
        return future


class _Any(dict[str, int]):
    """The same rights on every topic there might be."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> int:
        return conversation.ALTER_AND_DELETE


def permit(payload: bytes) -> bytes:
    """The answer of a broker that has every topic, to a user who may do everything."""
    return conversation.FakeBroker(_Any(), conversation.ALTER_AND_DELETE, asked=deque([payload])).answer()


@contextmanager
def served(
    controller: StubController,
    controller_id: str,
    *,
    active: bool = True,
    sasl: bool = False,
    answer: Callable[[bytes], bytes | None] = permit,
    **arguments: Any,
) -> Iterator[Server]:
    """An endpoint before ``controller``; ``answer``: its broker's. Others are the Server's own."""
    broker = endpoint.FakeBroker()
    broker.answer = answer
    desk = conversation.FakeDesk(active=active, controller_id=controller_id)
    upstream = Upstream([broker.address], "SASL_PLAINTEXT" if sasl else "PLAINTEXT")
    server = Server("127.0.0.1:0", desk, controller.submit, controller.refresh, upstream, **arguments)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        broker.close()
