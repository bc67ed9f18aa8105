"""A client's configuration: our settings, the partitioner, and the connection to the cluster.

The sources of the views (:mod:`modeaware.views`) take librdkafka's settings, for kafka-python's clients, too. So
kafka-python's keyword arguments for addresses and credentials are translated to librdkafka's settings. Arguments about
producing, consuming and groups go to kafka-python alone. A connection setting without an equivalent is an error, unless
the application gives settings in its place (:data:`OVERRIDES`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modeaware.config import ClientConfig, split_client_config, with_process_settings, with_topic_config
from modeaware.errors import ConfigError
from modeaware.librdkafka import C_HASHES
from partitioners import (
    DEFAULT_NAME,
    LIBRDKAFKA_NAMES,
    NAMES,
    Partitioner,
    as_partitioner,
    is_plug_in,
    load,
    named,
    wants_batches,
)

PREFIX = "modeaware_"
OVERRIDES = "modeaware_librdkafka"
"""Our keyword for a dict of librdkafka settings, which replace the translated ones."""
TOKEN_LIFETIME_S = 60.0
"""The assumed lifetime of kafka-python's tokens, which come without one. librdkafka requests the next token earlier."""

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
# Connection settings without an equivalent -> librdkafka's settings to give instead.
_INSTEAD: Mapping[str, str] = {
    "ssl_context": "ssl.ca.location, ssl.certificate.location, ...",
    "sasl_kerberos_name": "sasl.kerberos.service.name, sasl.kerberos.principal",
    "sasl_kerberos_domain_name": "bootstrap.servers with the brokers' own names",
    "proxy_url": "bootstrap.servers that need no proxy",
    "socks5_proxy": "bootstrap.servers that need no proxy",
}
_LINGER_NAMES = ("queue.buffering.max.ms", "linger.ms")  # the second is librdkafka's alias of the first
_DEFAULT_LINGER_MS = 5.0
_MOST_STICKY_LINGER_MS = 900_000
_DEFAULT_BATCH_SIZE = 1_000_000  # librdkafka's batch.size
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


@dataclass(frozen=True)
class Settings:
    """A client's keyword arguments, split by the part that reads them.

    Attributes:
        config: our settings.
        conf: how to reach the cluster, as librdkafka's settings.
        theirs: the keyword arguments of the client library.
    """

    config: ClientConfig
    conf: Mapping[str, Any]
    theirs: dict[str, Any]


def split_settings(configs: Mapping[str, Any]) -> Settings:
    """Split the keyword arguments of a ``KafkaProducer`` or ``KafkaConsumer``.

    Ours are the settings of :class:`~modeaware.config.ClientConfig` with underscores (``modeaware_view_timeout_ms``),
    and ``modeaware_librdkafka``: a dict of librdkafka settings for the views, which replace translated settings.

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
        raise ConfigError(_underscored(error.message)) from None
    return Settings(config, conf, theirs)


def librdkafka_conf(configs: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return librdkafka's settings to reach the cluster of ``configs`` (kafka-python's).

    Args:
        configs: the application's arguments; kafka-python's defaults equal librdkafka's.
        overrides: librdkafka settings that replace translated ones.

    Raises:
        ConfigError: a setting cannot be translated, and ``overrides`` is empty.
    """
    conf: dict[str, Any] = {"bootstrap.servers": _servers(configs.get("bootstrap_servers", "localhost"))}
    given = {name: value for name, value in configs.items() if value is not None}
    protocol = str(given.get("security_protocol", "PLAINTEXT")).upper()
    for name, value in given.items():
        if name in SAME_VALUES and _concerns(name, protocol):
            conf[SAME_VALUES[name]] = value
        elif name in _INSTEAD and _concerns(name, protocol) and not overrides:
            raise ConfigError(
                f"{name} has no equivalent in librdkafka, which reads the partition modes: set {OVERRIDES}={{...}} "
                f"with {_INSTEAD[name]}"
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
    """Return whether a setting applies. A setting of TLS needs a protocol with TLS, a setting of SASL one with SASL."""
    part, underscore, _ = name.partition("_")
    return not underscore or part not in ("ssl", "sasl") or part.upper() in protocol.split("_")


def _servers(value: Any) -> str:
    return value if isinstance(value, str) else ",".join(str(server) for server in value)


def _translate_sasl(conf: dict[str, Any], given: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    mechanism = str(given.get("sasl_mechanism", ""))
    if mechanism not in _MECHANISMS and not overrides:
        raise ConfigError(
            f"sasl_mechanism: {mechanism!r} cannot be passed on to the source of the partition modes (librdkafka), "
            f"which has {', '.join(_MECHANISMS)}: set {OVERRIDES}={{...}} with another mechanism"
        )
    if mechanism != "GSSAPI":
        conf.pop("sasl.kerberos.service.name", None)
    provider = given.get("sasl_oauth_token_provider")
    if mechanism == "OAUTHBEARER" and provider is not None:
        conf["oauth_cb"] = TokenCallback(provider)


@dataclass(frozen=True, eq=False)
class TokenCallback:
    """confluent_kafka's ``oauth_cb`` over a token provider of kafka-python's. Equal for the same provider, so that
    clients with the same provider share their views."""

    provider: Any
    clock: Callable[[], float] = time.time

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenCallback) and other.provider is self.provider and other.clock is self.clock

    def __hash__(self) -> int:
        return hash((id(self.provider), self.clock))

    def __call__(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        extensions = getattr(self.provider, "extensions", dict)
        return str(self.provider.token()), self.clock() + TOKEN_LIFETIME_S, "", dict(extensions() or {})


def _underscored(message: str) -> str:
    return re.sub(r"\bmodeaware(\.[a-z]+)+", lambda match: match[0].replace(".", "_"), message)


def given_conf(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration in the arguments of a confluent_kafka client: a dict, keywords, or both. The keywords
    override the dict.

    Raises:
        TypeError: no arguments, or arguments of another form; the message is confluent_kafka's.
    """
    if len(args) > 1:
        raise TypeError("expected tuple containing single dict")
    if not (args or kwargs) or not all(isinstance(arg, dict) for arg in args):
        raise TypeError("expected configuration dict")
    return {str(name): value for conf in (*args, kwargs) for name, value in conf.items()}


def own_partitioner(partitioner: Any) -> Partitioner | None:
    """Return the partitioner, if the value is one of :mod:`partitioners` or the name of one (``murmur2_random``,
    ``package.module:name``). Return None for any other value, which kafka-python accepts or rejects.

    Raises:
        ValueError, TypeError: no partitioner has this name; the message has the reason.
    """
    if isinstance(partitioner, str):
        return load(partitioner) if is_plug_in(partitioner) else named(partitioner, hashes=C_HASHES)
    return partitioner if callable(getattr(partitioner, "for_topic", None)) else None


def is_beyond_librdkafka(partitioner: object) -> bool:
    """Return whether librdkafka cannot use this value of ``partitioner``: a name that only :mod:`partitioners` has,
    ``"package.module:name"``, or an object. librdkafka itself reports unknown names."""
    if isinstance(partitioner, str):
        return (partitioner in NAMES and partitioner not in LIBRDKAFKA_NAMES) or is_plug_in(partitioner)
    return partitioner is not None


def partitioner_of(conf: Mapping[str, Any]) -> Partitioner:
    """Return the partitioner that ``partitioner`` and ``sticky.partitioning.linger.ms`` set, with the hashes in C.

    Args:
        conf: a configuration that librdkafka has accepted, apart from ``partitioner``. As in librdkafka, its
            ``default.topic.config`` overrides the other settings.

    Raises:
        ConfigError: ``partitioner`` is neither a partitioner nor the name of one.
    """
    settings = with_topic_config(conf)
    chosen = settings.get("partitioner")
    try:
        if isinstance(chosen, str) and is_plug_in(chosen):
            return load(chosen)
        if chosen is not None and not isinstance(chosen, str):
            return as_partitioner(chosen, repr(chosen))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"partitioner: {error}") from error
    partitioner = named(
        DEFAULT_NAME if chosen is None else chosen,
        hashes=C_HASHES,
        linger_s=_sticky_linger_ms(settings) / 1000,
        batch_size=int(_number(settings.get("batch.size", ""), _DEFAULT_BATCH_SIZE)),
    )
    if wants_batches(partitioner):
        usable = [name for name in NAMES if not wants_batches(named(name))]
        raise ConfigError(
            f"partitioner: {chosen!r} needs to know when a batch ends, which librdkafka does not report; "
            f"use one of {', '.join(usable)}"
        )
    return partitioner


def _sticky_linger_ms(settings: Mapping[str, Any]) -> int:
    if "sticky.partitioning.linger.ms" in settings:
        return int(_number(settings["sticky.partitioning.linger.ms"], 2 * _DEFAULT_LINGER_MS))
    linger_ms = _DEFAULT_LINGER_MS
    for name, value in settings.items():  # the last one counts
        if name in _LINGER_NAMES:
            linger_ms = _number(value, _DEFAULT_LINGER_MS)
    return min(_MOST_STICKY_LINGER_MS, int(2 * linger_ms))


def _number(value: Any, default: float) -> float:
    # "0x10" and "10ms" are numbers, as in C's strtol and strtod.
    match = re.match(r"\s*(0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE]\d+)?)", str(value))
    if match is None:
        return default
    text = match[1]
    return float(int(text, 16)) if text[:2] in ("0x", "0X") else float(text)
