"""Options that commands share: the properties file, whole numbers, settings that belong elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from modeaware.cli import options
from modeaware.errors import ConfigError

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "client.properties"
        path.write_text(text)
        return path

    return write


def _parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    options.add_connection_options(parser)
    options.add_controller_config_option(parser, "--config")
    return parser.parse_args(["--bootstrap-server", "kafka:9092", *arguments])


def test_a_properties_file_is_read_as_kafkas_tools_read_it(write: Write) -> None:
    path = write(
        "# comment\n! comment\n\nsecurity.protocol=SASL_SSL\n sasl.password = a=b#c \nssl.endpoint=\\\n  none\n"
    )
    assert options.read_properties(path) == {
        "security.protocol": "SASL_SSL",
        "sasl.password": "a=b#c",
        "ssl.endpoint": "none",
    }


def test_the_connection_takes_our_settings_out(write: Write) -> None:
    path = write("client.id=me\nmodeaware.mode.log.topic=modes\nbootstrap.servers=elsewhere:1\n")
    connection = options.connection(_parse("--command-config", str(path)), defaults={"log_level": 0})
    assert connection.conf == {"client.id": "me", "bootstrap.servers": "kafka:9092", "log_level": 0}
    assert connection.config.mode_log_topic == "modes"
    assert connection.bootstrap_server == "kafka:9092"


def test_a_setting_of_java_clients_comes_with_advice(write: Write) -> None:
    path = write("sasl.jaas.config=org.apache.kafka...\n")
    with pytest.raises(ConfigError, match=r"use sasl\.username and sasl\.password"):
        options.connection(_parse("--command-config", str(path)))


@pytest.mark.parametrize(("text", "ok"), [("0", True), ("60000", True), ("-1", False), ("1.5", False), ("soon", False)])
def test_a_delay_is_a_whole_number_of_ms(text: str, ok: bool) -> None:
    if ok:
        assert options.delay_ms(text) == int(text)
    else:
        with pytest.raises(argparse.ArgumentTypeError):
            options.delay_ms(text)
