"""What a broker's start needs, made once a machine: the jars, formatted metadata, an archive of loaded classes.

The last two take a broker's start from about six seconds of CPU to two.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from modeaware.errors import LocalKafkaError
from modeaware.local.jars import KAFKA_VERSION, cache_folder, find_java, kafka_jars, locked
from modeaware.local.node import START_TIMEOUT_S, wait_until_serving
from modeaware.local.process import OwnedProcess
from modeaware.local.settings import (
    Seat,
    broker_command,
    format_command,
    free_ports,
    random_uuid,
    server_properties,
    write_properties,
)

logger = logging.getLogger(__name__)

CHECKPOINT = "bootstrap.checkpoint"
"""What Kafka's StorageTool writes beside ``meta.properties``: feature levels, the same for every node and cluster."""


class Installation(NamedTuple):
    """A Kafka that is ready to start.

    Fields:
        java: the program.
        jars: folder of the jars.
        checkpoint: a ``bootstrap.checkpoint`` as StorageTool writes it without further arguments.
        archive: class data archive for the JVM; need not exist (some JREs make none).
    """

    java: str
    jars: Path
    checkpoint: Path
    archive: Path


def install(version: str = KAFKA_VERSION) -> Installation:
    """Find or make all of it. Safe between processes.

    Args:
        version: of Apache Kafka; each has its own checkpoint, for its feature levels are its own.

    Raises:
        LocalKafkaError: no Java, no jars, no such version, or this Java does not run this Kafka.
    """
    java, jars = find_java(), kafka_jars(version)
    folder = cache_folder() / f"kafka-{version}-{_fingerprint(java)}"
    if not folder.is_dir():  # it appears by a rename, so it is whole
        with locked(folder.with_name(folder.name + ".lock")):
            if not folder.is_dir():
                logger.info("Preparing quick starts of Kafka %s with %s (once) ...", version, java)
                _rehearse(java, jars, folder)
    return Installation(java, jars, folder / CHECKPOINT, folder / "classes.jsa")


def format_node(java: str, jars: Path, properties: Path, cluster_id: str, arguments: Sequence[str]) -> None:
    """Run Kafka's StorageTool for the node that ``properties`` describes.

    Raises:
        LocalKafkaError: it refused; carries what it said.
    """
    command = format_command(java, jars, properties, cluster_id, arguments)
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise LocalKafkaError(f"Kafka's StorageTool refused {properties}:\n{done.stdout}{done.stderr}".strip())


def _rehearse(java: str, jars: Path, folder: Path) -> None:
    """Run one throwaway broker, keep its checkpoint and the classes it loaded."""
    with tempfile.TemporaryDirectory(prefix=folder.name + ".", dir=folder.parent) as scratch_name:
        scratch = Path(scratch_name)
        kept, data, properties = scratch / "kept", scratch / "data", scratch / "server.properties"
        kept.mkdir()
        data.mkdir()
        port, controller_port = free_ports(2)
        seat, cluster_id, log = Seat(1, port, controller_port), random_uuid(), scratch / "broker.log"
        write_properties(properties, server_properties(seat, [seat], data, {}))
        format_node(java, jars, properties, cluster_id, [])
        shutil.copy(data / CHECKPOINT, kept)
        command = broker_command(java, jars, properties, heap_mb=512, small=False)
        command.insert(1, f"-XX:ArchiveClassesAtExit={kept / 'classes.jsa'}")
        broker = OwnedProcess(command, log, data)
        try:
            wait_until_serving(seat.address, [1], cluster_id=cluster_id, deadline=time.monotonic() + START_TIMEOUT_S)
            broker.signal(signal.SIGTERM)
            if not broker.wait(START_TIMEOUT_S):
                logger.warning("The rehearsal's broker did not end: brokers will start more slowly")
        except LocalKafkaError as error:
            tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:])
            raise LocalKafkaError(f"{error}\nThe end of the broker's log:\n{tail}") from error
        finally:
            broker.signal(signal.SIGKILL)
            broker.wait(5)
        kept.rename(folder)


def _fingerprint(java: str) -> str:
    program = Path(java).resolve()
    return hashlib.sha256(f"{program} {program.stat().st_mtime_ns}".encode()).hexdigest()[:8]
