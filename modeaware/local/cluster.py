"""Clusters of one to three Kafka nodes (KRaft, combined roles), each a process on this machine.

:class:`LocalKafka` ends with the process that owns it. The Kafka of ``modeaware local up`` outlives that command. Each
user has at most one such Kafka; the user's state folder has its description and process ids.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, NamedTuple, Self

from modeaware.callouts import get_logger
from modeaware.errors import LocalKafkaError
from modeaware.local.jars import (
    KAFKA_VERSION,
    META_PROPERTIES,
    Installation,
    copy_formatted,
    format_node,
    install,
    locked,
    state_folder,
)
from modeaware.local.process import (
    START_TIMEOUT_S,
    BrokerProcess,
    DetachedProcess,
    OwnedProcess,
    wait_until_serving,
    wait_until_stopped,
)
from modeaware.local.settings import (
    Seat,
    broker_command,
    free_ports,
    random_uuid,
    server_properties,
    write_properties,
)

logger = get_logger(__name__)

MOST_NODES = 3
_STOP_TIMEOUT_S = 30.0
_KILL_TIMEOUT_S = 10.0
_DESCRIPTION = "cluster.json"
_PID_FILE = "broker.pid"
_TRIES = 3
_NOT_RUNNING = "this local Kafka is not running; call start() or use it as a context manager"
_PORT_TAKEN = "Address already in use"


class Kafka(ABC):
    """A running Kafka: one to three brokers. A context manager, which at its end stops only brokers that it started."""

    kind: ClassVar[str]
    """``"external"``, ``"container"`` or ``"process"``."""

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """The value of the setting ``bootstrap.servers``."""

    @property
    def brokers(self) -> Sequence[LocalBroker]:
        """The brokers in the order of their node ids; empty unless ``kind`` is ``"process"``."""
        return ()

    @abstractmethod
    def logs_tail(self, lines: int = 40) -> str:
        """Return the last lines of each broker's log."""

    @abstractmethod
    def stop(self, *, keep_logs: bool = False) -> None:
        """Stop the brokers that were started. Idempotent.

        Args:
            keep_logs: whether to keep the brokers' logs (:attr:`LocalBroker.log_path`).
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class LocalBroker:
    """A broker that is a process on this machine; ``folder`` contains the broker's ``server.properties``,
    ``broker.log`` and ``data``.
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
        """The broker's id."""
        return self.seat.node_id

    @property
    def address(self) -> str:
        """The broker's listener for clients, ``host:port``."""
        return self.seat.address

    @property
    def pid(self) -> int | None:
        """The id of the broker's process; None while the broker does not run."""
        return self._process.pid if self._process is not None and self._process.running() else None

    @property
    def log_path(self) -> Path:
        """The path of the broker's log."""
        return self.folder / "broker.log"

    @property
    def data(self) -> Path:
        """The directory of the broker's data (``log.dirs``)."""
        return self.folder / "data"

    def kill(self) -> None:
        """End the broker with SIGKILL."""
        self._end(signal.SIGKILL, _KILL_TIMEOUT_S)

    def pause(self) -> None:
        """Freeze the broker with SIGSTOP; return once all its threads are frozen."""
        process = self._running_process()
        process.signal(signal.SIGSTOP)
        wait_until_stopped(process.pid)

    def resume(self) -> None:
        """Let the broker run again after :meth:`pause`."""
        self._running_process().signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the broker with SIGTERM; after 30 s, end it with SIGKILL and raise LocalKafkaError."""
        if self._process is not None:
            self._process.signal(signal.SIGCONT)  # a stopped process does not receive SIGTERM
        try:
            self._end(signal.SIGTERM, _STOP_TIMEOUT_S)
        except LocalKafkaError:
            self.kill()
            raise

    def start(self, *, wait: bool = True) -> None:
        """Start the broker with its former data and port.

        Args:
            wait: whether to wait until the broker answers as a member of the cluster. Pass False if several brokers
                need each other for a quorum: start all of them, then call :meth:`wait_until_serving`.

        Raises:
            LocalKafkaError: the broker runs already, or did not start. In the second case the text has the end of the
                broker's log, or the log's path.
        """
        if self.pid is not None:
            raise LocalKafkaError(f"broker {self.node_id} is already running (pid {self.pid})")
        self._process = self._launch(self.folder)
        if wait:
            self.wait_until_serving([self.node_id])

    def restart(self) -> None:
        """Stop the broker, and start it again with its data and port."""
        self.stop()
        self.start()

    def wait_until_serving(self, node_ids: Collection[int], *, deadline: float | None = None) -> None:
        """Wait until this broker answers and lists ``node_ids`` as running members.

        Args:
            deadline: when to give up, on :func:`time.monotonic`'s clock; default: 60 s from now.

        Raises:
            LocalKafkaError: the deadline has passed. The text has the end of the broker's log.
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
        """Return the last lines of the broker's log; empty if the broker never ran."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _end(self, number: int, timeout_s: float) -> None:
        if self._process is None:
            return
        self._process.signal(number)
        if not self._process.wait(timeout_s):
            name = f"broker {self.node_id} (pid {self._process.pid})"
            raise LocalKafkaError(f"{name} did not end within {timeout_s:.0f} s of signal {number}")

    def _running_process(self) -> BrokerProcess:
        if self._process is None or not self._process.running():
            raise LocalKafkaError(f"broker {self.node_id} does not run")
        return self._process

    def _check_running(self) -> None:
        if self._process is None or not self._process.running():
            raise LocalKafkaError(f"broker {self.node_id} ended while it started")


class LocalKafka(Kafka):
    """A real Kafka on this machine, started by :meth:`start` or by entering its context.

    Unless ``detached``, the brokers end with this process, even if this process is killed. Not thread-safe, but other
    threads may kill and pause the brokers. In a forked child :meth:`stop` does nothing.

    Args:
        nodes: the number of nodes, 1 to 3.
        configs: broker settings; they override those of ``modeaware.local.settings``, which make a broker start fast.
        folder: an empty or missing folder for all files; default: a new temporary one. :meth:`stop` removes the folder.
            After a failed start the folder stays, and the error contains its path.
        heap_mb: each broker's heap limit; default 512 for one node, 400 for more.
        client_config: the librdkafka settings for a client, if ``configs`` secure the brokers.
        format_args: further arguments for ``StorageTool format``, such as ``--add-scram``.
        detached: whether the brokers outlive this process (``modeaware local up``).
        version: the version of Apache Kafka, a release in Maven Central (3.3 or newer, because the nodes use KRaft).

    Raises:
        ValueError: not 1 to 3 nodes.
    """

    kind = "process"
    version: str
    """The version of Apache Kafka."""

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
            raise ValueError(f"a local Kafka has 1 to {MOST_NODES} nodes, not {nodes}")
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
        """The folder with all files of the cluster. Raises LocalKafkaError if the cluster does not run."""
        if self._folder is None:
            raise LocalKafkaError(_NOT_RUNNING)
        return self._folder

    @property
    def brokers(self) -> tuple[LocalBroker, ...]:
        return self._brokers

    @property
    def bootstrap_servers(self) -> str:
        if self._folder is None:
            raise LocalKafkaError(_NOT_RUNNING)
        return ",".join(broker.address for broker in self._brokers)

    def logs_tail(self, lines: int = 40) -> str:
        return "\n".join(f"--- {broker.log_path}\n{broker.log_tail(lines)}" for broker in self._brokers)

    def start(self) -> Self:
        """Start all nodes; wait until each lists all others. Takes seconds; the first start also downloads Kafka.

        Raises:
            LocalKafkaError: Java, the jars or this version of Kafka are missing; or a broker did not start.
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
                    raise LocalKafkaError(f"{error}\nIts files are kept in {self._reset()}.") from error
            except BaseException:
                self._kill_all()
                shutil.rmtree(self._reset())
                raise
            logger.info("another process took one of the ports; trying new ones")
            shutil.rmtree(self._folder)
            self._folder.mkdir()
        raise AssertionError("unreachable")

    def stop(self, *, keep_logs: bool = False) -> None:
        """Kill all brokers (their data is not needed), and remove the folder; with ``keep_logs``, only the data."""
        if self._folder is None or os.getpid() != self._owner:
            return
        self._kill_all()
        folder = self._reset()
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
            raise LocalKafkaError(f"{folder} is not empty; a local Kafka needs its own folder")
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
            (folder / _PID_FILE).write_text(str(process.pid), encoding="utf-8")
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
        node_ids, deadline = [seat.node_id for seat in seats], time.monotonic() + START_TIMEOUT_S
        for broker in self._brokers:
            broker.wait_until_serving(node_ids, deadline=deadline)

    def _describe(self) -> None:
        nodes = [{"node_id": broker.node_id, "address": broker.address} for broker in self._brokers]
        description = {"kafka_version": self.version, "cluster_id": self._brokers[0].cluster_id, "nodes": nodes}
        (self.folder / _DESCRIPTION).write_text(json.dumps(description, indent=2), encoding="utf-8")

    def _format(self, installed: Installation, seats: Sequence[Seat]) -> None:
        """Write StorageTool's files for each node. The tool runs only if it has extra arguments, and only for the first
        node; all others get copies."""
        formatted = installed.formatted
        for broker in self._brokers:
            broker.data.mkdir(parents=True)
            properties = broker.folder / "server.properties"
            write_properties(properties, server_properties(broker.seat, seats, broker.data, self._configs))
            if self._format_args and broker is self._brokers[0]:
                format_node(installed.java, installed.jars, properties, broker.cluster_id, self._format_args)
                formatted = broker.data
                continue
            copy_formatted(formatted, broker.data)
            identity = {"version": "1", "cluster.id": broker.cluster_id, "node.id": str(broker.node_id)}
            write_properties(broker.data / META_PROPERTIES, {**identity, "directory.id": random_uuid()})

    def _kill_all(self) -> None:
        for broker in self._brokers:
            broker.kill()

    def _reset(self) -> Path:
        """Reset this object to its state before the start; return its folder, which the caller removes or keeps."""
        folder, self._folder = self.folder, None
        atexit.unregister(self.stop)
        return folder


# The user's local Kafka, which outlives the process that started it


class DetachedBroker(NamedTuple):
    """The state of a broker; ``pid`` is None if the broker does not run."""

    node_id: int
    address: str
    pid: int | None
    log_path: Path


class DetachedKafka(NamedTuple):
    """The state of the user's local Kafka. If ``brokers`` is empty, there is none."""

    brokers: tuple[DetachedBroker, ...]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def healthy(self) -> bool:
        """Whether the Kafka exists and all its brokers run."""
        return bool(self.brokers) and all(broker.pid is not None for broker in self.brokers)


def up(nodes: int, configs: Mapping[str, str]) -> tuple[DetachedKafka, bool]:
    """Start the user's local Kafka unless it runs; return it, and whether it was started. If one of its brokers has
    ended, replace the whole Kafka by a new one, without the data.

    Raises:
        LocalKafkaError: a Kafka with another number of nodes runs, or the start failed.
    """
    with locked(_lock()):
        running = status()
        if running.healthy:
            if len(running.brokers) != nodes:
                there = f"a local Kafka of {len(running.brokers)} node(s) is already running"
                raise LocalKafkaError(f"{there}; for {nodes} node(s) first call `modeaware local down`")
            return running, False
        _remove(running.brokers)
        LocalKafka(nodes, configs=configs, folder=_folder(), detached=True).start()
        return status(), True


def down() -> DetachedKafka:
    """Stop the user's local Kafka, remove all its files, and return its last state. If there is none, do nothing.

    Raises:
        LocalKafkaError: a broker cannot be killed.
    """
    with locked(_lock()):
        running = status()
        _remove(running.brokers)
        return running


def status() -> DetachedKafka:
    """Return the user's local Kafka.

    Raises:
        LocalKafkaError: the description of the Kafka cannot be read.
    """
    description = _folder() / _DESCRIPTION
    if not description.exists():
        return DetachedKafka(())
    try:
        nodes = json.loads(description.read_text(encoding="utf-8"))["nodes"]
        return DetachedKafka(tuple(_find(int(node["node_id"]), str(node["address"])) for node in nodes))
    except (ValueError, KeyError, TypeError) as error:
        text = f"cannot read {description} ({error!r}): stop the brokers of the local Kafka, then delete this file"
        raise LocalKafkaError(text) from error


def _find(node_id: int, address: str) -> DetachedBroker:
    folder = _folder() / f"node-{node_id}"
    process = _process(folder)
    running = process is not None and process.running()
    return DetachedBroker(node_id, address, process.pid if process and running else None, folder / "broker.log")


def _process(node_folder: Path) -> DetachedProcess | None:
    pid_file = node_folder / _PID_FILE
    if not pid_file.exists():
        return None
    return DetachedProcess(int(pid_file.read_text(encoding="utf-8")), str(node_folder / "server.properties"))


def _remove(brokers: Sequence[DetachedBroker]) -> None:
    for broker in brokers:
        process = _process(broker.log_path.parent)
        if process is None:
            continue
        process.signal(signal.SIGKILL)  # its data is removed anyway
        if not process.wait(_KILL_TIMEOUT_S):
            raise LocalKafkaError(f"broker {broker.node_id} (pid {process.pid}) cannot be killed")
    if _folder().exists():
        shutil.rmtree(_folder())


def _folder() -> Path:
    return state_folder() / "kafka"


def _lock() -> Path:
    return state_folder() / "kafka.lock"
