"""A client's configuration as options of Spark's Kafka connector, whose clients are Java's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from modeaware.config import split_client_config, with_topic_config
from modeaware.errors import ConfigError
from modeaware.wire.client_tls import PROTOCOLS, servers

Role = Literal["producer", "consumer"]
_NO_LIMIT = 2**31 - 1
_REQUEST_TIMEOUT_MS = 30_000  # Java's default
PREFIX = "kafka."

# librdkafka's names (its CONFIGURATION.md) -> Java's. What they mean is the same, unit included.
_BOTH = {
    "client.id": "client.id",
    "client.rack": "client.rack",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "request.timeout.ms": "request.timeout.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "metadata.max.age.ms": "metadata.max.age.ms",
}
_PRODUCER = {
    "acks": "acks",
    "request.required.acks": "acks",
    "batch.size": "batch.size",
    "compression.codec": "compression.type",
    "compression.type": "compression.type",
    "delivery.timeout.ms": "delivery.timeout.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "enable.idempotence": "enable.idempotence",
    "linger.ms": "linger.ms",
    "queue.buffering.max.ms": "linger.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "max.in.flight.requests.per.connection": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "retries": "retries",
}
_CONSUMER = {
    "check.crcs": "check.crcs",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.min.bytes": "fetch.min.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "isolation.level": "isolation.level",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}
_SASL_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SECURITY = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
    }
)
# How librdkafka does its work, not what becomes of the records: a Java client has its own ways.
_LIBRDKAFKA_ONLY = frozenset(
    {
        "bootstrap.servers",
        "metadata.broker.list",
        "partitioner",  # the sink's column follows it
        "sticky.partitioning.linger.ms",
        "debug",
        "log_level",
        "logger",
        "batch.num.messages",
        "allow.auto.create.topics",
        "group.id",  # Spark makes its own
        "auto.offset.reset",  # startingOffsets
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "default.topic.config",
        "socket.timeout.ms",
        "message.copy.max.bytes",
        "enable.ssl.certificate.verification",  # checked by _refuse
    }
)
_LIBRDKAFKA_ONLY_PREFIXES = (
    "queue.",
    "queued.",
    "statistics.",
    "log.",
    "socket.",
    "broker.",
    "api.version.",
    "enable.sparse",
)
_CALLBACKS = ("_cb", "on_delivery", "on_commit")


def spark_options(conf: Mapping[str, Any], role: Role) -> dict[str, str]:
    """Options ``kafka.*`` with which Spark's connector reaches the same cluster as the same user, as the same client.

    Taken over are ``bootstrap.servers``, ``security.protocol``, ``sasl.*`` for PLAIN and SCRAM, ``ssl.*`` with PEM
    strings or files (certificate and key are read here, the CA's file must be there on every executor), and what tunes
    a client under both names, such as ``acks``, ``linger.ms`` and ``compression.type``. Our own settings, callbacks,
    and what tunes librdkafka's inner workings are left out.

    Args:
        conf: a configuration as for :class:`modeaware.Producer` or :class:`modeaware.Consumer`.
        role: which settings count beside those of the connection. The other's are left out.

    Raises:
        ConfigError: a setting decides who connects, how, or what becomes of the records, and cannot be translated. It
            names the setting; the option ``kafka.<Java's name>`` of Spark can say it instead.
    """
    _, rest = split_client_config(conf)
    rest = with_topic_config(rest)
    _refuse(rest)
    options = {"bootstrap.servers": ",".join(servers(rest)), **_security(rest)}
    names = _BOTH | (_PRODUCER if role == "producer" else _CONSUMER)
    for name, value in rest.items():
        if value is not None and (java := names.get(name)):
            options[java] = _text(value)
    if role == "producer":
        _fit_timeouts(options)
    return {PREFIX + name: value for name, value in options.items()}


def _fit_timeouts(options: dict[str, str]) -> None:
    """What librdkafka takes and Java refuses: parts of a millisecond, no limit as 0, a limit below one request's."""
    if (linger := _number(options, "linger.ms")) is not None:
        options["linger.ms"] = str(math.ceil(linger))
    if (delivery := _number(options, "delivery.timeout.ms")) is None:
        return
    if delivery <= 0:
        options["delivery.timeout.ms"] = str(_NO_LIMIT)
        return
    room = int(delivery) - int(options.get("linger.ms", 0))
    if room < int(_number(options, "request.timeout.ms") or _REQUEST_TIMEOUT_MS):
        if room <= 0:
            raise ConfigError("message.timeout.ms has to be greater than linger.ms: Java's producer refuses it else")
        options["request.timeout.ms"] = str(room)


def _number(options: Mapping[str, str], name: str) -> float | None:
    try:
        return float(options[name])
    except KeyError:
        return None
    except ValueError as error:
        raise ConfigError(f"{name} must be a number, not {options[name]!r}") from error


def _refuse(conf: Mapping[str, Any]) -> None:
    if conf.get("transactional.id"):
        raise ConfigError("transactional.id: Spark's Kafka sink has no transactions: leave it out")
    if _text(conf.get("enable.ssl.certificate.verification", True)) == "false":
        raise ConfigError("enable.ssl.certificate.verification: Java's clients always verify the brokers' certificates")
    known = {*_BOTH, *_PRODUCER, *_CONSUMER, *_SECURITY, *_LIBRDKAFKA_ONLY}
    for name, value in conf.items():
        ours_to_leave = name.endswith(_CALLBACKS) or name.startswith(_LIBRDKAFKA_ONLY_PREFIXES)
        if value is not None and name not in known and (name == "oauth_cb" or not ours_to_leave):
            raise ConfigError(
                f"{name} cannot be translated for Spark's Kafka connector: leave it out, and give the option "
                f"{PREFIX}<the name Java's clients have for it>, if it matters"
            )


def _security(conf: Mapping[str, Any]) -> dict[str, str]:
    protocol = str(conf.get("security.protocol") or "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"security.protocol: {protocol!r} is none of {', '.join(PROTOCOLS)}")
    if protocol == "PLAINTEXT":
        return {}
    found = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        found |= _tls(conf)
    if protocol.startswith("SASL"):
        found |= _sasl(conf)
    return found


def _tls(conf: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    if location := conf.get("ssl.ca.location"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(location)}
    elif pem := conf.get("ssl.ca.pem"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": str(pem)}
    certificate, key = _pem(conf, "ssl.certificate"), _pem(conf, "ssl.key")
    if certificate and key:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate,
            "ssl.keystore.key": key,
        }
        if password := conf.get("ssl.key.password"):
            found["ssl.key.password"] = str(password)
    elif certificate or key:
        raise ConfigError("ssl.certificate.location and ssl.key.location (or .pem) go together: one of them is missing")
    if (algorithm := conf.get("ssl.endpoint.identification.algorithm")) is not None:
        found["ssl.endpoint.identification.algorithm"] = "" if str(algorithm).lower() == "none" else str(algorithm)
    return found


def _pem(conf: Mapping[str, Any], name: str) -> str | None:
    if text := conf.get(f"{name}.pem"):
        return str(text)
    if not (location := conf.get(f"{name}.location")):
        return None
    try:
        return Path(location).read_text(encoding="ascii")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{name}.location: {error}") from error


def _sasl(conf: Mapping[str, Any]) -> dict[str, str]:
    mechanism = str(conf.get("sasl.mechanism") or conf.get("sasl.mechanisms") or "GSSAPI").upper()
    login = _SASL_LOGIN.get(mechanism)
    if login is None:
        raise ConfigError(
            f"sasl.mechanism {mechanism} cannot be translated for Spark's Kafka connector; give it as options "
            f"{PREFIX}sasl.mechanism and {PREFIX}sasl.jaas.config, without sasl.* and security.protocol in conf"
        )
    user, password = (_jaas(conf, name) for name in ("sasl.username", "sasl.password"))
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{login} required username={user} password={password};"}


def _jaas(conf: Mapping[str, Any], name: str) -> str:
    if conf.get(name) is None:
        raise ConfigError(f"{name} is missing, which SASL needs")
    text = str(conf[name]).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
