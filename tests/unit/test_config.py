from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from modeaware.config import ClientConfig, ControllerConfig, parse_controller_config, split_client_config
from modeaware.errors import ConfigError, ModeAwareError


def test_without_settings_of_ours_the_defaults_hold_and_the_rest_is_untouched() -> None:
    conf = {"bootstrap.servers": "a:1", "on_delivery": print, "group.id": "g"}
    assert split_client_config(conf) == (ClientConfig(), conf)


def test_ours_are_taken_out() -> None:
    config, rest = split_client_config(
        {
            "bootstrap.servers": "a:1",
            "modeaware.mode.log.topic": "my.modes",
            "modeaware.view.timeout.ms": "250",
            "modeaware.on.unknown": "error",
            "modeaware.mode.source": "wire",
        }
    )
    assert config == ClientConfig("my.modes", view_timeout_ms=250, on_unknown="error", mode_source="wire")
    assert rest == {"bootstrap.servers": "a:1"}


def test_the_metadata_refresh_interval_is_shared_with_librdkafka() -> None:
    config, rest = split_client_config({"topic.metadata.refresh.interval.ms": "60000"})
    assert config.refresh_interval_ms == 60_000
    assert rest == {"topic.metadata.refresh.interval.ms": "60000"}
    assert split_client_config({"topic.metadata.refresh.interval.ms": -1})[0].refresh_interval_ms == 300_000


def test_an_unknown_setting_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"'modeaware.on.unkown': did you mean 'modeaware.on.unknown'"):
        split_client_config({"modeaware.on.unkown": "x"})


@pytest.mark.parametrize(
    ("parse", "name", "value"),
    [
        (split_client_config, "modeaware.view.timeout.ms", "soon"),
        (split_client_config, "modeaware.view.timeout.ms", -1),
        (split_client_config, "modeaware.on.unknown", "ignore"),
        (split_client_config, "modeaware.mode.source", "endpoint"),
        (split_client_config, "modeaware.mode.log.topic", ""),
        (split_client_config, "modeaware.mode.log.topic", "a b"),
        (parse_controller_config, "delete.topic.partition.enable", "yes"),
        (parse_controller_config, "delete.topic.partition.check.interval.ms", "0"),
        (parse_controller_config, "modeaware.seal.quiet.ms", "-1"),
        (parse_controller_config, "modeaware.open.timeout.ms", "1.5"),
    ],
)
def test_a_bad_value_names_the_setting(parse: Callable[[dict[str, Any]], object], name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        parse({name: value})
    assert isinstance(caught.value, ModeAwareError)
    assert isinstance(caught.value, ValueError)


def test_controller_configs() -> None:
    assert parse_controller_config({}) == ControllerConfig()
    assert ControllerConfig().check_interval_ms == 300_000
    parsed = parse_controller_config(
        {
            "delete.topic.partition.enable": "False",
            "delete.topic.partition.check.interval.ms": "50",
            "modeaware.seal.quiet.ms": "0",
            "modeaware.open.timeout.ms": "1",
            "modeaware.ignored.groups": " console-consumer-*, tmp-?,",
            "modeaware.mode.log.topic": "m",
        }
    )
    assert parsed == ControllerConfig(
        False, 50, 0, 1, ignored_groups=("console-consumer-*", "tmp-?"), mode_log_topic="m"
    )
