"""A Kafka that somebody else runs."""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn, Self

from modeaware.errors import LocalKafkaError


class ExternalBroker:
    """A :class:`modeaware.local.api.Broker` to be used and not harmed: its methods raise LocalKafkaError."""

    pid = None
    log_path = None

    def __init__(self, node_id: int, address: str) -> None:
        self.node_id = node_id
        self.address = address

    def kill(self) -> None:
        self._refuse("killed")

    def pause(self) -> None:
        self._refuse("paused")

    def resume(self) -> None:
        self._refuse("resumed")

    def stop(self) -> None:
        self._refuse("stopped")

    def start(self) -> None:
        self._refuse("started")

    def restart(self) -> None:
        self._refuse("restarted")

    def _refuse(self, what: str) -> NoReturn:
        raise LocalKafkaError(
            f"The broker at {self.address} cannot be {what}: KAFKA_BOOTSTRAP_SERVERS names it, so it is not ours. "
            "Unset that variable, and a Kafka of our own is started."
        )


class ExternalKafka:
    """The cluster that KAFKA_BOOTSTRAP_SERVERS names. Nothing is started, checked or stopped.

    Args:
        bootstrap_servers: its addresses. Brokers are numbered from 1 in their order, whatever their real node ids.
    """

    kind = "external"

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        addresses = [address.strip() for address in bootstrap_servers.split(",") if address.strip()]
        self.brokers = tuple(ExternalBroker(number, address) for number, address in enumerate(addresses, start=1))

    def logs_tail(self, lines: int = 40) -> str:
        return f"(no logs here: {self.bootstrap_servers} is somebody else's)"

    def stop(self, *, keep_logs: bool = False) -> None:
        """Nothing: it is not ours."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
