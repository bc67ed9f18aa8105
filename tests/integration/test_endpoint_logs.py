"""What clients show a broker of who they are is in no log line of a controller, whatever its level."""

from __future__ import annotations

import base64
import logging
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation

from modeaware.errors import ModeAwareError
from modeaware.local.settings import free_ports
from modeaware.modelog.reader import read_mode_log
from tests.support.guarded import NOBODY, OTHER, OWNER, Guarded, address_of
from tests.support.process import LoggedProcess
from tests.support.secured import ADMIN, MECHANISMS, secret

GUESS = "guessed-by-somebody"
TOKENS_BEGIN = "eyJhbGciOi"
"""Every token's header, in base64."""


def test_no_credential_and_no_token_gets_into_any_log(
    guarded: Guarded, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A controller's process that says all it can, and one in this process with everybody's loggers at DEBUG."""
    caplog.set_level(logging.DEBUG)
    (port,) = free_ports(1)
    files, config = guarded.secured.certificate, guarded.properties(ADMIN)
    command = [
        *(sys.executable, "-m", "modeaware", "controller", "--verbose", "--bootstrap-server", guarded.servers),
        *("--command-config", config, "--config", "modeaware.mode.log.topic=modes-of-process"),
        *("--listen", f"127.0.0.1:{port}", "--tls-certificate", str(files.certificate), "--tls-key", str(files.key)),
    ]
    process = LoggedProcess(command, tmp_path / "controller.log")
    inside = guarded.controller("modes-inside")
    try:
        inside.start(wait_active_s=30)
        process.wait_until_it_says("active: epoch 1")
        for address, log in ((address_of(inside), "modes-inside"), (f"127.0.0.1:{port}", "modes-of-process")):
            topics = [guarded.topic() for _ in MECHANISMS]
            for topic in topics:
                guarded.grant(OTHER, topic, AclOperation.ALTER, AclOperation.DELETE)
            log_in_and_out(guarded, address, topics)
            replay = read_mode_log(guarded.conf, log, 20)
            assert all(replay.record(topic) is not None for topic in topics)
    finally:
        inside.stop()
        process.send_sigterm()
        status = process.wait(30)
    assert status == 0
    assert "requests: [DeletePartitions" in process.said
    assert "requests: [DeletePartitions" in caplog.text
    for name, told in (
        ("process", process.said),
        ("in here", caplog.text),
        ("librdkafka", "".join(capfd.readouterr())),
    ):
        assert not secrets_in(told), name


def log_in_and_out(guarded: Guarded, address: str, topics: list[str]) -> None:
    """By every mechanism, rightly and wrongly, and with credentials where they do not belong."""
    for topic, mechanism in zip(topics, MECHANISMS, strict=True):
        conf = guarded.client(OTHER, mechanism, address)
        guarded.shrink({**conf, "modeaware.mode.source": "wire"}, topic, 3)
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        conf = guarded.client(OTHER, mechanism, address, password=GUESS)
        with pytest.raises(ModeAwareError) as refused:
            guarded.shrink({**conf, "modeaware.mode.source": "wire"}, topics[0], 1, timeout_s=1)
        assert not secrets_in(str(refused.value))
    for mechanism in ("PLAIN", "OAUTHBEARER"):
        with guarded.raw(address) as peer:
            handshake, auth = peer.sasl(OTHER, mechanism)
            for words in ([auth], [handshake, auth[:-5]], [handshake[:2] + b"\0\0" + handshake[4:], auth], [auth[12:]]):
                with guarded.raw(address) as each:
                    each.send(*words, each.metadata())
                    assert each.closed()
            peer.send(handshake, auth, b"\0\3\0\x09" + auth[4:])
            assert peer.closed()


def secrets_in(text: str) -> list[str]:
    """The lines that hold one, as it is or in base64."""
    plain = [secret(user) for user in (ADMIN, OWNER, OTHER, NOBODY)] + [GUESS]
    known = [*plain, *(base64.b64encode(each.encode()).decode().rstrip("=") for each in plain), TOKENS_BEGIN]
    return [line[:300] for line in text.splitlines() if any(each in line for each in known)]
