"""Which Kafka is chosen, with a stub for the container engine: none is needed here."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from modeaware.errors import ConfigError, LocalKafkaError
from modeaware.local import container, start_kafka
from modeaware.local.choose import ExternalKafka, Way, choose_way
from modeaware.local.container import ContainerKafka

choose = sys.modules[choose_way.__module__]


class Engine:
    """Answers, and counts how often it is asked."""

    def __init__(self, answers: bool) -> None:
        self.answers = answers
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.answers


@pytest.mark.parametrize(
    ("nodes", "environment", "engine", "way"),
    [
        (1, {}, False, Way.PROCESS),
        (1, {}, True, Way.CONTAINER),
        (3, {}, True, Way.PROCESS),
        (1, {"MODEAWARE_LOCAL_KAFKA": "process"}, True, Way.PROCESS),
        (1, {"MODEAWARE_LOCAL_KAFKA": "container"}, False, Way.CONTAINER),
        (1, {"MODEAWARE_LOCAL_KAFKA": ""}, True, Way.CONTAINER),
        (1, {"KAFKA_BOOTSTRAP_SERVERS": "b:9092"}, True, Way.EXTERNAL),
        (3, {"KAFKA_BOOTSTRAP_SERVERS": "b:9092"}, False, Way.EXTERNAL),
    ],
)
def test_choice(nodes: int, environment: dict[str, str], engine: bool, way: Way) -> None:
    assert choose_way(nodes, environment, Engine(engine)) is way


def test_the_engine_is_asked_only_where_it_matters() -> None:
    engine = Engine(True)
    choose_way(3, {}, engine)
    choose_way(1, {"MODEAWARE_LOCAL_KAFKA": "process"}, engine)
    choose_way(1, {"KAFKA_BOOTSTRAP_SERVERS": "b:9092"}, engine)
    assert engine.asked == 0


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
        choose_way(nodes, environment, Engine(True))


def test_an_external_kafka_is_used_and_never_harmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "one:9092, two:9093")
    monkeypatch.delenv("MODEAWARE_LOCAL_KAFKA", raising=False)
    with start_kafka() as kafka:
        assert (kafka.kind, kafka.bootstrap_servers) == ("external", "one:9092, two:9093")
        assert list(kafka.brokers) == []


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "MODEAWARE_LOCAL_KAFKA"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_variables")
def test_a_container_that_does_not_start_is_told_and_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(configs: object) -> ContainerKafka:
        raise LocalKafkaError("no such image")

    monkeypatch.setattr(choose, "engine_answers", lambda: True)
    monkeypatch.setattr(choose, "start_container", fail)
    process = SimpleNamespace(start=lambda: ExternalKafka("stands:1"))
    monkeypatch.setattr(choose, "LocalKafka", lambda nodes, configs: process)

    assert start_kafka().bootstrap_servers == "stands:1"
    assert "no such image" in caplog.text

    monkeypatch.setenv("MODEAWARE_LOCAL_KAFKA", "container")
    with pytest.raises(LocalKafkaError, match="no such image"):
        start_kafka()


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], bool]:
    """Whether an engine answers at an address."""

    def answer(address: str) -> bool:
        monkeypatch.setenv("DOCKER_HOST", address)
        return container.engine_answers.__wrapped__()

    return answer


def serve(listener: socket.socket, reply: bytes) -> None:
    """Answer one request."""
    with listener, listener.accept()[0] as connection:
        request = connection.recv(1000)
        connection.sendall(reply if request.startswith(b"GET /_ping ") else b"what?")


@pytest.mark.parametrize(
    ("reply", "there"), [(b"HTTP/1.1 200 OK\r\n\r\nOK", True), (b"SSH-2.0-x\r\n", False), (b"", False)]
)
def test_an_engine_is_what_answers_a_ping(reply: bytes, there: bool, ask: Callable[[str], bool]) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server = threading.Thread(target=serve, args=(listener, reply))
    server.start()
    assert ask(f"tcp://127.0.0.1:{listener.getsockname()[1]}") is there
    server.join()


def test_an_engine_behind_a_unix_socket(tmp_path: Path, ask: Callable[[str], bool]) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "engine"))
    listener.listen()
    server = threading.Thread(target=serve, args=(listener, b"HTTP/1.1 200 OK\r\n\r\nOK"))
    server.start()
    assert ask(f"unix://{tmp_path}/engine")
    server.join()


@pytest.mark.parametrize("address", ["unix:///nowhere/docker.sock", "ssh://host", "tcp://host", "rubbish"])
def test_no_engine_there(address: str, ask: Callable[[str], bool]) -> None:
    assert not ask(address)


def test_a_containers_log_and_end() -> None:
    stopped: list[bool] = []
    box = SimpleNamespace(get_logs=lambda: (b"one\ntwo\n", b"three\n"), stop=lambda: stopped.append(True))
    with ContainerKafka(box, "here:1") as kafka:
        assert kafka.logs_tail(2) == "two\nthree"
    kafka.stop()
    assert stopped == [True]
    assert kafka.logs_tail() == ""
