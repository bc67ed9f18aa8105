"""One broker of a local cluster: it can be killed, frozen and restarted."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from modeaware.errors import LocalKafkaError
from modeaware.librdkafka import KafkaException
from modeaware.librdkafka_admin import AdminClient
from modeaware.local.process import BrokerProcess, wait_until_stopped
from modeaware.local.settings import Seat

_POLL_S = 0.02


def wait_until_serving(
    address: str,
    node_ids: Collection[int],
    *,
    deadline: float,
    cluster_id: str | None = None,
    check: Callable[[], None] = lambda: None,
    client_config: Mapping[str, str] | None = None,
) -> None:
    """Wait until the broker at ``address`` answers Metadata and lists all of ``node_ids`` (registered and unfenced).

    Args:
        address: ``host:port``.
        node_ids: brokers that have to be there; empty = any answer will do.
        deadline: on :func:`time.monotonic`'s clock, seconds.
        cluster_id: answers of another cluster do not count: its broker was faster at taking the port.
        check: called between tries; raises when waiting is pointless.
        client_config: librdkafka settings to connect with, where plaintext will not do.

    Raises:
        LocalKafkaError: not by the deadline; or what ``check`` raises.
    """
    _wait_for_listener(address, deadline, check)
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": address,
        "log_level": 0,  # a broker that is still starting is no news
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        **(client_config or {}),
    }
    admin = AdminClient(settings)
    while True:
        check()
        try:
            metadata = admin.list_topics(timeout=1)
        except KafkaException as error:
            reason = str(error)
        else:
            ours = cluster_id is None or metadata.cluster_id == cluster_id
            if ours and set(metadata.brokers).issuperset(node_ids):
                return
            reason = f"it lists the brokers {sorted(metadata.brokers)}, expected {sorted(node_ids)}"
            if not ours:
                reason = f"a broker of another cluster, {metadata.cluster_id}, answers there"
        if time.monotonic() > deadline:
            raise LocalKafkaError(f"The broker at {address} was not ready in time: {reason}")
        time.sleep(_POLL_S)  # a broker that starts tells nobody when it is done


def _wait_for_listener(address: str, deadline: float, check: Callable[[], None]) -> None:
    host, _, port = address.rpartition(":")
    while True:
        check()
        try:
            with socket.create_connection((host, int(port)), timeout=1):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise LocalKafkaError(f"Nothing listened at {address} in time") from error
        time.sleep(_POLL_S)  # a port opens without telling anybody


START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_KILL_TIMEOUT_S = 10.0


class LocalBroker:
    """A broker that is a process on this machine.

    Args:
        seat: its id and ports.
        cluster_id: of the cluster it was formatted for.
        folder: holds ``server.properties``, ``broker.log`` and ``data``.
        launch: starts its process.
        client_config: librdkafka settings to reach it with.
    """

    def __init__(
        self,
        seat: Seat,
        cluster_id: str,
        folder: Path,
        launch: Callable[[Path], BrokerProcess],
        client_config: Mapping[str, str],
    ) -> None:
        self.seat = seat
        self.cluster_id = cluster_id
        self.folder = folder
        self._launch = launch
        self._client_config = client_config
        self._process: BrokerProcess | None = None

    def __repr__(self) -> str:
        return f"<LocalBroker {self.node_id} at {self.address}, pid {self.pid}>"

    @property
    def node_id(self) -> int:
        return self.seat.node_id

    @property
    def address(self) -> str:
        return self.seat.address

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.running() else None

    @property
    def log_path(self) -> Path:
        return self.folder / "broker.log"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def kill(self) -> None:
        self._end(signal.SIGKILL, _KILL_TIMEOUT_S)

    def pause(self) -> None:
        process = self._running_process()
        process.signal(signal.SIGSTOP)
        wait_until_stopped(process.pid)

    def resume(self) -> None:
        self._running_process().signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._process.signal(signal.SIGCONT)  # a frozen one would not hear the next
        try:
            self._end(signal.SIGTERM, _STOP_TIMEOUT_S)
        except LocalKafkaError:
            self.kill()
            raise

    def start(self, *, wait: bool = True) -> None:
        """Start it on its data and port.

        Args:
            wait: until it answers as a member of the cluster. With False several can be started that need each other
                for a quorum; follow with :meth:`wait_until_serving`.

        Raises:
            LocalKafkaError: it runs already, or did not come up; carries the end of its log.
        """
        if self.pid is not None:
            raise LocalKafkaError(f"Broker {self.node_id} runs already (pid {self.pid})")
        self._process = self._launch(self.folder)
        if wait:
            self.wait_until_serving([self.node_id])

    def restart(self) -> None:
        self.stop()
        self.start()

    def wait_until_serving(self, node_ids: Collection[int], *, deadline: float | None = None) -> None:
        """Wait until this broker answers and lists ``node_ids`` as running members.

        Args:
            deadline: on :func:`time.monotonic`'s clock; default: 60 s from now.

        Raises:
            LocalKafkaError: it does not; carries the end of its log.
        """
        try:
            wait_until_serving(
                self.address,
                node_ids,
                deadline=time.monotonic() + START_TIMEOUT_S if deadline is None else deadline,
                cluster_id=self.cluster_id,
                check=self._check_running,
                client_config=self._client_config,
            )
        except LocalKafkaError as error:
            raise LocalKafkaError(f"{error}\nThe end of {self.log_path}:\n{self.log_tail(25)}") from error

    def log_tail(self, lines: int) -> str:
        """The last lines of its log; empty when it never ran."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _end(self, number: int, timeout_s: float) -> None:
        if self._process is None:
            return
        self._process.signal(number)
        if not self._process.wait(timeout_s):
            who = f"Broker {self.node_id} (pid {self._process.pid})"
            raise LocalKafkaError(f"{who} did not end within {timeout_s:.0f} s of signal {number}")

    def _running_process(self) -> BrokerProcess:
        if self._process is None or not self._process.running():
            raise LocalKafkaError(f"Broker {self.node_id} does not run")
        return self._process

    def _check_running(self) -> None:
        if self._process is None or not self._process.running():
            raise LocalKafkaError(f"Broker {self.node_id} ended while it started")
