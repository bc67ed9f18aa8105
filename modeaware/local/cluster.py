"""A cluster of one to three Kafka nodes (KRaft, combined roles), each a process on this machine."""

from __future__ import annotations

import atexit
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from modeaware.errors import LocalKafkaError
from modeaware.local.install import CHECKPOINT, Installation, format_node, install
from modeaware.local.jars import KAFKA_VERSION
from modeaware.local.node import START_TIMEOUT_S, LocalBroker
from modeaware.local.process import BrokerProcess, DetachedProcess, OwnedProcess
from modeaware.local.settings import (
    Seat,
    broker_command,
    free_ports,
    random_uuid,
    server_properties,
    write_properties,
)

logger = logging.getLogger(__name__)

MOST_NODES = 3
DESCRIPTION = "cluster.json"
PID_FILE = "broker.pid"
_TRIES = 3
_NOT_RUNNING = "This local Kafka is not running: call start() or use it as a context manager"
_PORT_TAKEN = "Address already in use"


class LocalKafka:
    """A real Kafka on this machine, started by :meth:`start` or by entering its context.

    Its brokers end with this process, even when it is killed. Not thread-safe, but its brokers may be harmed from other
    threads. A fork must leave it alone: there, :meth:`stop` does nothing.

    Args:
        nodes: 1 to 3.
        configs: broker settings over the quick ones, see ``modeaware.local.settings``.
        folder: an empty or missing folder for everything it writes; default: a new temporary one. :meth:`stop` removes
            it; after a failed start it stays, and the error names it.
        heap_mb: each broker's heap limit; default 512 for one node, 400 for more.
        client_config: librdkafka settings that reach the brokers where ``configs`` secured them.
        format_args: more arguments for ``StorageTool format`` (``--add-scram``).
        detached: let the brokers outlive this process (``modeaware local up``).
        version: of Apache Kafka, a release that Maven Central has (KRaft alone: 3.3 or newer).

    Raises:
        ValueError: not 1 to 3 nodes.
    """

    kind = "process"
    version: str
    """Of Apache Kafka."""

    def __init__(
        self,
        nodes: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        folder: Path | None = None,
        heap_mb: int | None = None,
        client_config: Mapping[str, str] | None = None,
        format_args: Sequence[str] = (),
        detached: bool = False,
        version: str = KAFKA_VERSION,
    ) -> None:
        if not 1 <= nodes <= MOST_NODES:
            raise ValueError(f"A local Kafka has 1 to {MOST_NODES} nodes, not {nodes}")
        self._nodes = nodes
        self._configs = dict(configs or {})
        self._wanted_folder = folder
        self._heap_mb = heap_mb or (512 if nodes == 1 else 400)
        self._client_config = dict(client_config or {})
        self._format_args = tuple(format_args)
        self._detached = detached
        self.version = version
        self._owner = os.getpid()
        self._folder: Path | None = None
        self._brokers: tuple[LocalBroker, ...] = ()

    @property
    def folder(self) -> Path:
        """Where it keeps everything. Raises LocalKafkaError when it does not run."""
        if self._folder is None:
            raise LocalKafkaError(_NOT_RUNNING)
        return self._folder

    @property
    def brokers(self) -> tuple[LocalBroker, ...]:
        """The brokers by node id."""
        return self._brokers

    @property
    def bootstrap_servers(self) -> str:
        """Raises LocalKafkaError when it does not run."""
        if self._folder is None:
            raise LocalKafkaError(_NOT_RUNNING)
        return ",".join(broker.address for broker in self._brokers)

    def logs_tail(self, lines: int = 40) -> str:
        """The last lines of each broker's log."""
        return "\n".join(f"--- {broker.log_path}\n{broker.log_tail(lines)}" for broker in self._brokers)

    def start(self) -> Self:
        """Start all nodes and wait until each knows all. Seconds; the first time ever also the download of Kafka.

        Raises:
            LocalKafkaError: no Java, no jars, no such version of Kafka, or a broker that did not come up (with the end
                of its log).
        """
        if self._folder is not None:
            return self
        installation = install(self.version)
        self._folder = self._make_folder()
        if not self._detached:
            atexit.register(self.stop)
        for attempt in range(1, _TRIES + 1):
            try:
                self._start_once(installation)
                return self
            except LocalKafkaError as error:
                self._kill_all()
                if attempt == _TRIES or _PORT_TAKEN not in self.logs_tail(200):
                    raise LocalKafkaError(
                        f"{error}\nAll it wrote is left in {self._let_go()} for you to look at."
                    ) from error
            except BaseException:
                self._kill_all()
                shutil.rmtree(self._let_go())
                raise
            logger.info("Another process took one of the ports; trying with new ones")
            shutil.rmtree(self._folder)
            self._folder.mkdir()
        raise AssertionError("unreachable")

    def stop(self, *, keep_logs: bool = False) -> None:
        """Kill all brokers (their data goes anyway) and remove the folder, or all but the logs with ``keep_logs``."""
        if self._folder is None or os.getpid() != self._owner:
            return
        self._kill_all()
        folder = self._let_go()
        if keep_logs:
            for broker in self._brokers:
                shutil.rmtree(broker.data, ignore_errors=True)
        else:
            shutil.rmtree(folder)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it; after an error the brokers' logs are kept, and a note on the error names their folder."""
        failed = isinstance(exc, Exception)
        if exc is not None and failed and self._folder is not None:
            exc.add_note(f"The logs of the local Kafka are kept in {self._folder}")
        self.stop(keep_logs=failed)

    def _make_folder(self) -> Path:
        folder = self._wanted_folder
        if folder is None:
            return Path(tempfile.mkdtemp(prefix="modeaware-kafka-"))
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise LocalKafkaError(f"{folder} is not empty: a local Kafka wants a folder for itself")
        return folder.absolute()

    def _start_once(self, installed: Installation) -> None:
        ports = iter(free_ports(2 * self._nodes))
        seats = [Seat(node_id, next(ports), next(ports)) for node_id in range(1, self._nodes + 1)]

        def launch(folder: Path) -> BrokerProcess:
            properties = folder / "server.properties"
            command = broker_command(
                installed.java,
                installed.jars,
                properties,
                heap_mb=self._heap_mb,
                small=self._nodes > 1,
                archive=installed.archive,
            )
            log = folder / "broker.log"
            if not self._detached:
                return OwnedProcess(command, log, folder / "data")
            process = DetachedProcess.launch(command, log, str(properties))
            (folder / PID_FILE).write_text(str(process.pid), encoding="utf-8")
            return process

        cluster_id, folder = random_uuid(), self.folder
        self._brokers = tuple(
            LocalBroker(seat, cluster_id, folder / f"node-{seat.node_id}", launch, self._client_config)
            for seat in seats
        )
        self._describe()
        self._format(installed, seats)
        for broker in self._brokers:
            broker.start(wait=False)
        everybody, deadline = [seat.node_id for seat in seats], time.monotonic() + START_TIMEOUT_S
        for broker in self._brokers:
            broker.wait_until_serving(everybody, deadline=deadline)

    def _describe(self) -> None:
        nodes = [{"node_id": broker.node_id, "address": broker.address} for broker in self._brokers]
        description = {"kafka_version": self.version, "cluster_id": self._brokers[0].cluster_id, "nodes": nodes}
        (self.folder / DESCRIPTION).write_text(json.dumps(description, indent=2), encoding="utf-8")

    def _format(self, installed: Installation, seats: Sequence[Seat]) -> None:
        """Write what Kafka's StorageTool writes; run that only where it has arguments, and once, not for each node."""
        checkpoint = installed.checkpoint
        for broker in self._brokers:
            broker.data.mkdir(parents=True)
            properties = broker.folder / "server.properties"
            write_properties(properties, server_properties(broker.seat, seats, broker.data, self._configs))
            if self._format_args and broker is self._brokers[0]:
                format_node(installed.java, installed.jars, properties, broker.cluster_id, self._format_args)
                checkpoint = broker.data / CHECKPOINT
                continue
            shutil.copy(checkpoint, broker.data)
            identity = {"version": "1", "cluster.id": broker.cluster_id, "node.id": str(broker.node_id)}
            write_properties(broker.data / "meta.properties", {**identity, "directory.id": random_uuid()})

    def _kill_all(self) -> None:
        for broker in self._brokers:
            broker.kill()

    def _let_go(self) -> Path:
        """Be as before the start; the folder, to remove or to leave."""
        folder, self._folder = self.folder, None
        atexit.unregister(self.stop)
        return folder
