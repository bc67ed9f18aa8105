"""What every way of running a Kafka for demos and tests looks like to its user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self


class Broker(Protocol):
    """One broker that a test can harm. Methods raise :class:`modeaware.errors.LocalKafkaError` where it is not ours."""

    @property
    def node_id(self) -> int:
        """Its id in the cluster, from 1 on."""

    @property
    def address(self) -> str:
        """``host:port`` of the client listener; stays the same across restarts."""

    @property
    def pid(self) -> int | None:
        """Process id on this machine, None when it does not run or runs elsewhere."""

    @property
    def log_path(self) -> Path | None:
        """The broker's log on this machine, if there is one."""

    def kill(self) -> None:
        """SIGKILL: no controlled shutdown, nothing flushed. Returns when the process is gone."""

    def pause(self) -> None:
        """Freeze the broker: connections stay open and nothing answers. Returns when it is frozen."""

    def resume(self) -> None:
        """Undo :meth:`pause`."""

    def stop(self) -> None:
        """Stop in good order (leaders move away first). Harmless when it does not run."""

    def start(self) -> None:
        """Start a stopped or killed broker on its old data and port. Returns when it answers as a cluster member."""

    def restart(self) -> None:
        """:meth:`stop` and :meth:`start`."""


class Kafka(Protocol):
    """A running Kafka: one to three brokers. A context manager that stops what it started, and only that."""

    @property
    def kind(self) -> str:
        """``"external"``, ``"container"`` or ``"process"``."""

    @property
    def bootstrap_servers(self) -> str:
        """For the setting ``bootstrap.servers``."""

    @property
    def brokers(self) -> Sequence[Broker]:
        """The brokers by node id; empty when the cluster is not ours."""

    def logs_tail(self, lines: int = 40) -> str:
        """The last lines of each broker's log."""

    def stop(self, *, keep_logs: bool = False) -> None:
        """Stop what was started. Harmless when repeated.

        Args:
            keep_logs: leave the brokers' logs where they are (:attr:`Broker.log_path`).
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...
