"""Which Kafka is chosen, with a stub for the container engine: none is needed here."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from modeaware.errors import ConfigError, LocalKafkaError
from modeaware.local import container, start_kafka
from modeaware.local.choose import Way, choose_way
from modeaware.local.container import ContainerKafka
from modeaware.local.external import ExternalKafka

choose = sys.modules[choose_way.__module__]


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
        assert [broker.address for broker in kafka.brokers] == ["one:9092", "two:9093"]
        for harm in ("kill", "pause", "resume", "stop", "start", "restart"):
            with pytest.raises(LocalKafkaError, match=r"one:9092 cannot be .* KAFKA_BOOTSTRAP_SERVERS"):
                getattr(kafka.brokers[0], harm)()


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
    assert container.engine_answers.__wrapped__() is there
    server.join()


@pytest.mark.parametrize("address", ["unix:///nowhere/docker.sock", "ssh://host", "tcp://host", "rubbish"])
def test_no_engine_there(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    assert not container.engine_answers.__wrapped__()


def test_a_container_is_harmed_through_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(container, "wait_until_serving", lambda address, *_, **__: calls.append(address))
    engine = SimpleNamespace(**{name: partial(calls.append, name) for name in ("kill", "start", "pause", "unpause")})
    engine.stop = lambda **_: calls.append("stop")
    logs = (b"one\ntwo\n", b"three\n")
    box = SimpleNamespace(get_wrapped_container=lambda: engine, get_logs=lambda: logs, stop=lambda: calls.append("end"))
    with ContainerKafka(box, "here:1") as kafka:
        for harm in ("kill", "start", "pause", "resume", "restart"):
            getattr(kafka.brokers[0], harm)()
        assert kafka.logs_tail(2) == "two\nthree"
    kafka.stop()
    assert calls == ["kill", "start", "here:1", "pause", "unpause", "stop", "start", "here:1", "end"]
    assert kafka.logs_tail() == ""
