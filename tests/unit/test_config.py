"""Settings of clients and controllers, and kafka-python's keyword arguments in librdkafka's words."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from modeaware.clients.settings import SAME_VALUES, librdkafka_conf, split_settings
from modeaware.config import ClientConfig, ControllerConfig, parse_controller_config, split_client_config
from modeaware.errors import ConfigError, ModeAwareError
from modeaware.librdkafka import Producer


def test_ours_are_taken_out() -> None:
    config, rest = split_client_config(
        {
            "bootstrap.servers": "a:1",
            "on_delivery": print,
            "modeaware.mode.log.topic": "my.modes",
            "modeaware.view.timeout.ms": "250",
            "modeaware.on.unknown": "error",
            "modeaware.mode.source": "wire",
        }
    )
    assert config == ClientConfig("my.modes", view_timeout_ms=250, on_unknown="error", mode_source="wire")
    assert rest == {"bootstrap.servers": "a:1", "on_delivery": print}


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
        (split_client_config, "modeaware.resize_cb", "print"),
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


# kafka-python's keyword arguments


def test_tls_and_sasl_are_translated() -> None:
    same_values = [
        ("bootstrap_servers", "bootstrap.servers", "a:1"),
        ("client_id", "client.id", "me"),
        ("security_protocol", "security.protocol", "SASL_SSL"),
        ("sasl_mechanism", "sasl.mechanisms", "SCRAM-SHA-256"),
        ("sasl_plain_username", "sasl.username", "alice"),
        ("sasl_plain_password", "sasl.password", "secret"),
        ("ssl_cafile", "ssl.ca.location", "ca.pem"),
        ("ssl_certfile", "ssl.certificate.location", "cert.pem"),
        ("ssl_keyfile", "ssl.key.location", "key.pem"),
        ("ssl_crlfile", "ssl.crl.location", "crl.pem"),
        ("ssl_password", "ssl.key.password", "pass"),
        ("ssl_ciphers", "ssl.cipher.suites", "ECDHE"),
        ("metadata_max_age_ms", "topic.metadata.refresh.interval.ms", 1000),
    ]
    others = {"sasl_kerberos_service_name": "kafka", "ssl_check_hostname": False, "request_timeout_ms": 5}
    conf = librdkafka_conf({theirs: value for theirs, _, value in same_values} | others, {})
    named = {name: value for _, name, value in same_values}
    assert conf == {**named, "ssl.endpoint.identification.algorithm": "none"}


@pytest.mark.parametrize(
    "configs",
    [
        {"security_protocol": "SSL", "ssl_context": object()},
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"},
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", "sasl_kerberos_domain_name": "x"},
        {"proxy_url": "socks5://proxy:1"},
    ],
    ids=lambda configs: next(reversed(configs)),
)
def test_what_cannot_be_translated_is_given_by_librdkafkas_own_names(configs: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="modeaware_librdkafka"):
        split_settings(configs)
    parted = split_settings({**configs, "modeaware_librdkafka": {"bootstrap.servers": "b:2", "ssl.ca.location": "x"}})
    assert (parted.conf["bootstrap.servers"], parted.conf["ssl.ca.location"]) == ("b:2", "x")
    assert parted.theirs == configs


def test_errors_speak_in_underscores() -> None:
    with pytest.raises(ConfigError, match="'modeaware_view_timeot_ms': did you mean 'modeaware_view_timeout_ms'"):
        split_settings({"modeaware_view_timeot_ms": 5})
    with pytest.raises(ConfigError, match=r"^modeaware_on_unknown: must be one of block"):
        split_settings({"modeaware_on_unknown": "x"})
    with pytest.raises(ConfigError, match="modeaware_librdkafka: must be a dict"):
        split_settings({"modeaware_librdkafka": 5})


def test_every_name_exists_on_both_sides() -> None:
    rejected = {"ssl_context", "sasl_kerberos_name", "sasl_kerberos_domain_name", "proxy_url", "socks5_proxy"}
    named = {*SAME_VALUES, *rejected, "bootstrap_servers", "ssl_check_hostname", "sasl_oauth_token_provider"}
    for client in (KafkaProducer, KafkaConsumer):
        assert named <= set(client.DEFAULT_CONFIG)
        ours = {
            name
            for name in client.DEFAULT_CONFIG
            if name.startswith(("ssl_", "sasl_", "security_", "socks5_", "proxy"))
        }
        assert ours <= named, "a setting that decides how to connect is neither translated nor refused"
        assert inspect.signature(client.__init__).parameters["configs"].kind is inspect.Parameter.VAR_KEYWORD
    numbers = {"topic.metadata.refresh.interval.ms": 1000}
    words = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "PLAIN", "client.dns.lookup": "use_all_dns_ips"}
    files = {"ssl.ca.location", "ssl.certificate.location", "ssl.crl.location", "ssl.key.location"}
    texts = dict.fromkeys(
        set(SAME_VALUES.values()) - numbers.keys() - words.keys() - files - {"ssl.cipher.suites"}, "x"
    )
    Producer({"bootstrap.servers": "localhost:1", "log_level": 0, **numbers, **words, **texts})
