"""One local Kafka per user that outlives the process that started it: ``modeaware local up|down|status``."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from modeaware.errors import LocalKafkaError
from modeaware.local.cluster import DESCRIPTION, PID_FILE, LocalKafka
from modeaware.local.jars import locked, state_folder
from modeaware.local.process import DetachedProcess

_KILL_TIMEOUT_S = 10.0


class DetachedBroker(NamedTuple):
    """A broker as found: ``pid`` is None when it does not run."""

    node_id: int
    address: str
    pid: int | None
    log_path: Path


class DetachedKafka(NamedTuple):
    """The user's local Kafka as found; no brokers = there is none."""

    brokers: tuple[DetachedBroker, ...]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def healthy(self) -> bool:
        """There is one, and all its brokers run."""
        return bool(self.brokers) and all(broker.pid is not None for broker in self.brokers)


def up(nodes: int, configs: Mapping[str, str]) -> tuple[DetachedKafka, bool]:
    """Start the user's local Kafka unless it runs. A broken one (not all brokers run) is replaced.

    Returns:
        It, and whether it was started now.

    Raises:
        LocalKafkaError: it runs with another number of nodes, or does not start.
    """
    with locked(_lock()):
        found = status()
        if found.healthy:
            if len(found.brokers) != nodes:
                there = f"A local Kafka of {len(found.brokers)} node(s) runs already"
                raise LocalKafkaError(f"{there}; for {nodes} node(s) first call `modeaware local down`")
            return found, False
        _remove(found.brokers)
        LocalKafka(nodes, configs=configs, folder=_folder(), detached=True).start()
        return status(), True


def down() -> DetachedKafka:
    """Stop the user's local Kafka and remove all it wrote. What there was is returned; harmless when there was none.

    Raises:
        LocalKafkaError: a broker cannot be killed.
    """
    with locked(_lock()):
        found = status()
        _remove(found.brokers)
        return found


def status() -> DetachedKafka:
    """What there is now.

    Raises:
        LocalKafkaError: its description cannot be read.
    """
    description = _folder() / DESCRIPTION
    if not description.exists():
        return DetachedKafka(())
    try:
        nodes = json.loads(description.read_text(encoding="utf-8"))["nodes"]
        return DetachedKafka(tuple(_find(int(node["node_id"]), str(node["address"])) for node in nodes))
    except (ValueError, KeyError, TypeError) as error:
        raise LocalKafkaError(f"{description} is damaged ({error!r}): end its brokers by hand and remove it") from error


def _find(node_id: int, address: str) -> DetachedBroker:
    folder = _folder() / f"node-{node_id}"
    process = _process(folder)
    running = process is not None and process.running()
    return DetachedBroker(node_id, address, process.pid if process and running else None, folder / "broker.log")


def _process(node_folder: Path) -> DetachedProcess | None:
    pid_file = node_folder / PID_FILE
    if not pid_file.exists():
        return None
    return DetachedProcess(int(pid_file.read_text(encoding="utf-8")), str(node_folder / "server.properties"))


def _remove(brokers: Sequence[DetachedBroker]) -> None:
    for broker in brokers:
        process = _process(broker.log_path.parent)
        if process is None:
            continue
        process.signal(signal.SIGKILL)  # in good order or not: the data goes anyway
        if not process.wait(_KILL_TIMEOUT_S):
            raise LocalKafkaError(f"Broker {broker.node_id} (pid {process.pid}) cannot be killed")
    if _folder().exists():
        shutil.rmtree(_folder())


def _folder() -> Path:
    return state_folder() / "kafka"


def _lock() -> Path:
    return state_folder() / "kafka.lock"
