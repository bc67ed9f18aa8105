"""Keyword arguments of kafka-python and aiokafka: ours, theirs, and their connection in librdkafka's words.

The views of the modes are read by librdkafka (:mod:`modeaware.views`), for whatever client they serve. So what says
where the cluster is, and as whom to go there, is translated; all that is about producing, consuming and groups stays
with that library. What decides who connects or how, and has nothing like it in librdkafka, is refused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.config import ClientConfig, split_client_config, with_process_settings
from modeaware.errors import ConfigError

PREFIX = "modeaware_"
OVERRIDES = "modeaware_librdkafka"
"""Our keyword for librdkafka settings (a dict) that replace what was translated."""
TOKEN_LIFETIME_S = 60.0
"""How long a token counts that came without its expiry: librdkafka asks for the next one before that is over."""

_DOTTED = PREFIX.replace("_", ".")
_UNDERSCORED = {"modeaware.resize.cb": "modeaware.resize_cb"}  # our names that have an underscore themselves

# kafka-python's name -> librdkafka's, with the same values.
SAME_VALUES: Mapping[str, str] = {
    "client_id": "client.id",
    "client_dns_lookup": "client.dns.lookup",
    "metadata_max_age_ms": "topic.metadata.refresh.interval.ms",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
    "sasl_mechanism": "sasl.mechanisms",
    "sasl_plain_password": "sasl.password",
    "sasl_plain_username": "sasl.username",
    "security_protocol": "security.protocol",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
}
# Decide how to connect, and librdkafka cannot be told: what to give it instead, by its own names.
_INSTEAD: Mapping[str, str] = {
    "ssl_context": "ssl.ca.location, ssl.certificate.location, ...",
    "sasl_kerberos_name": "sasl.kerberos.service.name, sasl.kerberos.principal",
    "sasl_kerberos_domain_name": "bootstrap.servers with the brokers' own names",
    "proxy_url": "bootstrap.servers that need no proxy",
    "socks5_proxy": "bootstrap.servers that need no proxy",
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


@dataclass(frozen=True)
class Settings:
    """A client's keyword arguments, parted.

    Attributes:
        config: our settings.
        conf: how to reach the cluster, in librdkafka's words.
        theirs: kafka-python's keyword arguments.
    """

    config: ClientConfig
    conf: Mapping[str, Any]
    theirs: dict[str, Any]


def split_settings(configs: Mapping[str, Any]) -> Settings:
    """Part the keyword arguments of a ``KafkaProducer`` or ``KafkaConsumer``.

    Ours are those of :class:`~modeaware.config.ClientConfig` with underscores (``modeaware_view_timeout_ms``), and
    ``modeaware_librdkafka``: a dict of librdkafka settings for the source of the modes, which replace translated ones.

    Raises:
        ConfigError: an unknown setting of ours (the message gives the nearest known name), a bad value, or a setting
            of kafka-python that decides how to connect and cannot be translated.
    """
    ours = {_dotted(name): value for name, value in configs.items() if _is_ours(name) and name != OVERRIDES}
    theirs = {name: value for name, value in configs.items() if not _is_ours(name)}
    overrides = configs.get(OVERRIDES) or {}
    if not isinstance(overrides, Mapping):
        raise ConfigError(f"{OVERRIDES}: must be a dict of librdkafka settings, not {type(overrides).__name__}")
    try:
        config, conf = split_client_config(with_process_settings({**librdkafka_conf(theirs, overrides), **ours}))
    except ConfigError as error:
        raise ConfigError(_in_kafka_pythons_words(error.message)) from None
    return Settings(config, conf, theirs)


def librdkafka_conf(configs: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """How ``configs`` (kafka-python's) reach the cluster, in librdkafka's words.

    Args:
        configs: what the application gave; kafka-python's defaults are librdkafka's.
        overrides: librdkafka settings that replace what is translated.

    Raises:
        ConfigError: a setting cannot be translated and nothing in ``overrides`` stands in for it.
    """
    conf: dict[str, Any] = {"bootstrap.servers": _servers(configs.get("bootstrap_servers", "localhost"))}
    given = {name: value for name, value in configs.items() if value is not None}
    protocol = str(given.get("security_protocol", "PLAINTEXT")).upper()
    for name, value in given.items():
        if name in SAME_VALUES and _concerns(name, protocol):
            conf[SAME_VALUES[name]] = value
        elif name in _INSTEAD and _concerns(name, protocol) and not overrides:
            raise ConfigError(
                f"{name} cannot be passed on to the source of the partition modes (librdkafka): "
                f"give {OVERRIDES}={{...}} with {_INSTEAD[name]}"
            )
    if "SSL" in protocol.split("_") and not given.get("ssl_check_hostname", True):
        conf["ssl.endpoint.identification.algorithm"] = "none"
    if protocol.startswith("SASL"):
        _translate_sasl(conf, given, overrides)
    return {**conf, **overrides}


def _is_ours(name: str) -> bool:
    return name.startswith((PREFIX, _DOTTED))


def _dotted(name: str) -> str:
    dotted = name.replace("_", ".")
    return _UNDERSCORED.get(dotted, dotted)


def _concerns(name: str, protocol: str) -> bool:
    """Whether a setting has a say: what is about TLS or SASL only where the protocol is."""
    part, underscore, _ = name.partition("_")
    return not underscore or part not in ("ssl", "sasl") or part.upper() in protocol.split("_")


def _servers(value: Any) -> str:
    return value if isinstance(value, str) else ",".join(str(server) for server in value)


def _translate_sasl(conf: dict[str, Any], given: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    mechanism = str(given.get("sasl_mechanism", ""))
    if mechanism not in _MECHANISMS and not overrides:
        raise ConfigError(
            f"sasl_mechanism: {mechanism!r} cannot be passed on to the source of the partition modes (librdkafka), "
            f"which has {', '.join(_MECHANISMS)}: give {OVERRIDES}={{...}} with another way in"
        )
    if mechanism != "GSSAPI":
        conf.pop("sasl.kerberos.service.name", None)
    provider = given.get("sasl_oauth_token_provider")
    if mechanism == "OAUTHBEARER" and provider is not None:
        conf["oauth_cb"] = TokenCallback(provider)


@dataclass(frozen=True)
class TokenCallback:
    """confluent_kafka's ``oauth_cb`` over a token provider of kafka-python's. Equal for the same provider, so that
    clients that share it share their views."""

    provider: Any
    clock: Callable[[], float] = time.time

    def __call__(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        extensions = getattr(self.provider, "extensions", dict)
        return str(self.provider.token()), self.clock() + TOKEN_LIFETIME_S, "", dict(extensions() or {})


def _in_kafka_pythons_words(message: str) -> str:
    return re.sub(r"\bmodeaware(\.[a-z]+)+", lambda found: found[0].replace(".", "_"), message)
