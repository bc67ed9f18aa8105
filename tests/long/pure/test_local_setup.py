"""Java, jars, ports and settings of the local Kafka, without starting one."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from modeaware.errors import LocalKafkaError
from modeaware.local import LocalKafka, install, jars
from modeaware.local.settings import (
    Seat,
    broker_command,
    free_ports,
    quick_defaults,
    random_uuid,
    server_properties,
    write_properties,
)

VERSIONS = {"java8": 8, "java17": 17, "java25": 25, "broken": None}
SEATS = [Seat(1, 15001, 15011), Seat(2, 15002, 15012), Seat(3, 15003, 15013)]


@pytest.mark.parametrize(
    ("candidates", "bundled", "chosen"),
    [
        (["java17", "java25"], None, "java17"),
        (["java8", "java25"], "wheel", "java25"),
        (["java8", "broken"], "wheel", "wheel"),
        ([], "wheel", "wheel"),
    ],
)
def test_the_first_java_that_is_new_enough(candidates: list[str], bundled: str | None, chosen: str) -> None:
    assert jars.choose_java(candidates, VERSIONS.__getitem__, lambda: bundled) == chosen


def test_no_java_says_what_was_found_and_what_to_do() -> None:
    with pytest.raises(
        LocalKafkaError, match=r"17 or newer.*java8 \(version 8\), broken \(no Java\).*modeaware\[local\]"
    ):
        jars.choose_java(["java8", "broken"], VERSIONS.__getitem__, lambda: None)


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


def test_the_wheel_brings_a_java() -> None:
    bundled = jars.bundled_java()
    assert bundled is not None
    version = jars.java_version(bundled)
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


def test_a_version_that_maven_does_not_know(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Resolver(monkeypatch, exit_code=1)
    monkeypatch.setattr(install, "find_java", lambda: "java")
    with pytest.raises(LocalKafkaError, match=r"(?s)could not resolve Apache Kafka 4\.0\.77.*the resolver's last word"):
        LocalKafka(version="4.0.77").start()
    assert not (cache / "kafka-4.0.77").exists()


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


def test_free_ports_differ() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(15_000 <= port < 32_000 for port in ports)


def test_ids_never_start_with_a_dash() -> None:
    ids = {random_uuid() for _ in range(500)}
    assert len(ids) == 500
    assert {len(one) for one in ids} == {22}
    assert all(one[0].isalpha() for one in ids)


@pytest.mark.parametrize(("nodes", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2")])
def test_internal_topics_are_replicated_as_far_as_it_goes(nodes: int, replicas: str, in_sync: str) -> None:
    settings = quick_defaults(nodes)
    assert settings["offsets.topic.replication.factor"] == replicas
    assert settings["transaction.state.log.min.isr"] == in_sync


def test_overrides_win_and_know_the_ports(tmp_path: Path) -> None:
    listeners = "SASL_SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
    settings = server_properties(SEATS[1], SEATS, tmp_path, {"listeners": listeners, "log.retention.ms": "5"})
    assert settings["listeners"] == "SASL_SSL://127.0.0.1:15002,CONTROLLER://127.0.0.1:15012"
    assert settings["log.retention.ms"] == "5"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:15011,2@127.0.0.1:15012,3@127.0.0.1:15013"

    write_properties(tmp_path / "p", {"a": "back\\slash\nline"})
    assert (tmp_path / "p").read_text(encoding="utf-8") == "a=back\\\\slash\\nline\n"


def test_overrides_know_the_node(tmp_path: Path) -> None:
    racks = [server_properties(seat, SEATS, tmp_path, {"broker.rack": "rack-{node_id}"}) for seat in SEATS]
    assert [settings["broker.rack"] for settings in racks] == ["rack-1", "rack-2", "rack-3"]


def test_small_brokers_and_the_class_archive(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    options = {"heap_mb": 400, "small": True, "archive": archive}
    without = broker_command("java", tmp_path, tmp_path / "p", **options)
    assert {"-Xmx400m", "-XX:TieredStopAtLevel=1"} <= set(without)
    assert not any("SharedArchiveFile" in part for part in without)
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in broker_command("java", tmp_path, tmp_path / "p", **options)


@pytest.mark.parametrize("nodes", [0, 4])
def test_one_to_three_nodes(nodes: int) -> None:
    with pytest.raises(ValueError, match="1 to 3 nodes"):
        LocalKafka(nodes)


def test_a_folder_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "somebody's").touch()
    kafka = LocalKafka(folder=tmp_path)
    with pytest.raises(LocalKafkaError, match="is not empty"):
        kafka.start()
    kafka.stop()
    assert (tmp_path / "somebody's").exists()
