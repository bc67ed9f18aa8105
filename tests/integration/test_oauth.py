"""OAUTHBEARER by ``oauth_cb=package.module:name``: commands and clients, by both libraries, on a real broker."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import modeaware
from modeaware import cli
from modeaware.controller.daemon import Controller
from tests.support.guarded import Guarded
from tests.support.secured import ADMIN, login
from tests.support.waiting import eventually

TOKENS = """\
from tests.support.raw_client import token as make

CALLS = []

def token(config):
    CALLS.append(config)
    import time
    return make(config.partition("=")[2]), time.time() + 3600
"""


@pytest.fixture
def bearer(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings, all of them texts, as a file has them."""
    module = f"tokens_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{module}.py").write_text(TOKENS)
    monkeypatch.syspath_prepend(tmp_path)
    settings = login(guarded.secured.certificate, ADMIN, "OAUTHBEARER")
    del settings["enable.sasl.oauthbearer.unsecure.jwt"]  # librdkafka would make the tokens itself
    return {**settings, "oauth_cb": f"{module}:token"}


@pytest.mark.usefixtures("active")
def test_commands_log_in_by_the_function_that_their_file_names(
    guarded: Guarded, bearer: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, file, declared = guarded.topic(4), tmp_path / "client.properties", tmp_path / "topics.yaml"
    file.write_text("".join(f"{name}={value}\n" for name, value in bearer.items()))
    common = ["--bootstrap-server", guarded.servers, "--command-config", str(file)]
    assert cli.main(["topics", "--list", *common]) == 0
    assert topic in capsys.readouterr().out.splitlines()
    declared.write_text(f"version: 1\ntopics: {{{topic}: {{partitions: 2, configs: {{retention.ms: 9000}}}}}}\n")
    assert cli.main(["apply", str(declared), "--check", *common]) == 3
    assert cli.main(["apply", str(declared), "--yes", *common]) == 0, capsys.readouterr().err
    assert guarded.writable(topic) == 2
    file.write_text(file.read_text().replace(":token", ":absent"))
    assert cli.main(["topics", "--list", *common]) == 1
    assert "has no 'absent'" in capsys.readouterr().err


def test_clients_log_in_by_the_function_that_their_configuration_names(
    guarded: Guarded, active: Controller, bearer: dict[str, Any]
) -> None:
    topic = guarded.topic(4)
    conf = {"bootstrap.servers": guarded.servers, **bearer}
    told: list[object] = []
    with modeaware.AdminClient(conf) as admin:
        admin.delete_partitions({topic: modeaware.DeletePartitions(1)})[topic].result(60)
    producer = modeaware.Producer(conf)
    producer.produce(topic, b"v", b"k", on_delivery=lambda error, message: told.append(error or message.partition()))
    assert producer.flush(60) == 0
    assert told == [0]
    group = {"group.id": f"g-{uuid.uuid4().hex[:8]}", "auto.offset.reset": "earliest"}
    consumer = modeaware.Consumer({**conf, **group})
    try:
        consumer.subscribe([topic])
        eventually(lambda: (found := consumer.poll(0.2)) is not None and found.value() == b"v", 60)
    finally:
        consumer.close()
