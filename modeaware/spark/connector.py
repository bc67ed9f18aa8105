"""Spark's Kafka connector: its Maven coordinates, and a client's configuration as options of the connector.

One ``conf`` serves all readers and writers of :mod:`modeaware.spark`. Spark's own source and sink use Java's clients:
for them, settings are translated from librdkafka's names (its CONFIGURATION.md) to Java's. A setting that only tunes
librdkafka is left out. A setting without a translation is refused if it affects the connection, the user, or the
handling of records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from modeaware.clients.settings import partitioner_of
from modeaware.config import split_client_config, with_topic_config
from modeaware.errors import ConfigError, ModeAwareError
from modeaware.librdkafka import C_HASHES
from modeaware.wire.security import PROTOCOLS, TLS_SETTINGS, servers
from partitioners import NAMES, Partitioner, Rule, TopicPartitioner, is_plug_in, named

Role = Literal["producer", "consumer"]
PREFIX = "kafka."
SCALA = "2.13"
"""The Scala version of every build of Spark 4."""
_OLDEST = 4
_NO_LIMIT = 2**31 - 1
_HIDDEN = "secret: Spark redacts a value with this word\n"
"""The line before a private key. Spark shows options in its pages and event log, except those whose name or value
matches ``spark.redaction.regex`` (by default ``(?i)secret|password|token|access[.]?key``). Java's clients skip what
precedes the key."""
_REQUEST_TIMEOUT_MS = 30_000  # Java's default


@dataclass(frozen=True)
class Placement:
    """The rule by which the records of a job get their partitions.

    Attributes:
        partitions: the candidates, ascending; the partitioner picks an index into this tuple.
        rule: the partitioner's rule, or None if the partitioner is the application's own.
        refusal: the end of the message that refuses another partition; empty if all partitions are writable.
    """

    topic: str
    partitions: tuple[int, ...]
    partitioner: Partitioner
    rule: Rule | None
    refusal: str = ""


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


# librdkafka's name -> Java's, with the same meaning and unit.
_BOTH = {
    **_same("client.id", "client.rack", "connections.max.idle.ms", "metadata.max.age.ms", "request.timeout.ms"),
    **_same("reconnect.backoff.max.ms", "reconnect.backoff.ms", "retry.backoff.ms"),
    **_same("socket.connection.setup.timeout.ms"),
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
_OF_ROLE: Mapping[Role, Mapping[str, str]] = {
    "producer": {
        **_same("acks", "batch.size", "compression.type", "delivery.timeout.ms", "enable.idempotence", "linger.ms"),
        **_same("max.in.flight.requests.per.connection", "retries"),
        "compression.codec": "compression.type",
        "max.in.flight": "max.in.flight.requests.per.connection",
        "message.max.bytes": "max.request.size",
        "message.send.max.retries": "retries",
        "message.timeout.ms": "delivery.timeout.ms",
        "queue.buffering.max.ms": "linger.ms",
        "request.required.acks": "acks",
    },
    "consumer": {
        **_same("check.crcs", "fetch.max.bytes", "fetch.min.bytes", "isolation.level", "max.partition.fetch.bytes"),
        "fetch.message.max.bytes": "max.partition.fetch.bytes",
        "fetch.wait.max.ms": "fetch.max.wait.ms",
    },
}
_SASL_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SECURITY = {
    *("security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"),
    *TLS_SETTINGS,
} - {"ssl.cipher.suites", "ssl.crl.location"}
_LEFT_OUT = {
    *("bootstrap.servers", "metadata.broker.list"),  # translated separately
    *("partitioner", "sticky.partitioning.linger.ms"),  # respected by the column that the sink's frame gets
    *("group.id", "auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store"),  # Spark decides these
    *("allow.auto.create.topics", "batch.num.messages", "debug", "default.topic.config", "enable.partition.eof"),
    *("log_level", "logger", "message.copy.max.bytes"),
}
_LEFT_OUT_PREFIXES = (
    *("queue.", "queued.", "statistics.", "log.", "socket.", "broker.", "api.version.", "enable.sparse"),
)
_CALLBACKS = ("_cb", "on_delivery", "on_commit")


def packages() -> str:
    """Return the Maven coordinates of Spark's Kafka connector, for ``spark.jars.packages`` and ``--packages``.

    Raises:
        ModeAwareError: PySpark is not installed, or is older than 4.0.
    """
    for name in ("pyspark", "pyspark-client", "pyspark-connect"):
        try:
            installed = version(name)
            break
        except PackageNotFoundError:
            continue
    else:
        raise ModeAwareError("modeaware.spark needs PySpark: install modeaware[spark]")
    release = installed.partition("+")[0]  # a vendor's build of Spark has a suffix; the connector's version has none
    if int(release.partition(".")[0]) < _OLDEST:
        raise ModeAwareError(
            f"modeaware.spark needs PySpark {_OLDEST}.0 or newer, not {installed}: install modeaware[spark]"
        )
    return f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{release}"


def chosen_partitioner(conf: Mapping[str, Any], default: str) -> tuple[Rule | None, Partitioner]:
    """Return the partitioner of ``conf``, with its rule (None for an application's own); ConfigError if invalid."""
    chosen = with_topic_config(split_client_config(conf)[1]).get("partitioner") or default
    if not isinstance(chosen, str) or is_plug_in(chosen):
        return None, partitioner_of({"partitioner": chosen})
    if chosen not in NAMES:
        raise ConfigError(f"partitioner: unknown {chosen!r}; use one of {', '.join(NAMES)}")
    partitioner = named(chosen)
    return partitioner.rule, partitioner


def topic_partitioner(chosen: str | Partitioner, topic: str) -> TopicPartitioner:
    """Return the partitioner ``chosen`` for one topic. If it is a name, which can be pickled, the hashes are in C."""
    return (named(chosen, hashes=C_HASHES) if isinstance(chosen, str) else chosen).for_topic(topic)


def spark_options(conf: Mapping[str, Any], role: Role) -> dict[str, str]:
    """Return the options ``kafka.*`` with which Spark's connector reaches the same cluster as the same user.

    The client's certificate and key are read here, but the CA's file must be present on every executor. ``role``
    decides which settings are translated in addition to those of the connection.

    Raises:
        ConfigError: a setting cannot be translated; Spark's option ``kafka.<Java's name>`` can replace it.
    """
    conf = with_topic_config(split_client_config(conf)[1])
    _refuse(conf)
    options = {"bootstrap.servers": ",".join(servers(conf)), **_security(conf)}
    names = {**_BOTH, **_OF_ROLE[role]}
    options |= {names[name]: option_text(value) for name, value in conf.items() if value is not None and name in names}
    if role == "producer":
        _fit_timeouts(options)
    return {PREFIX + name: value for name, value in options.items()}


def option_text(value: Any) -> str:
    """Return a value in the form that Spark and Java's clients read."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fit_timeouts(options: dict[str, str]) -> None:
    """Adapt times: Java refuses fractions of a ms, 0 for "no limit", and delivery timeouts below request timeouts."""
    times = ("linger.ms", "delivery.timeout.ms", "request.timeout.ms")
    try:
        ms = {name: math.ceil(float(options[name])) for name in times if name in options}
    except ValueError as error:
        raise ConfigError(f"{', '.join(times)} must be numbers: {error}") from error
    if "linger.ms" in ms:
        options["linger.ms"] = str(ms["linger.ms"])
    if (delivery := ms.get("delivery.timeout.ms")) is None:
        return
    room = delivery - ms.get("linger.ms", 0)
    if delivery <= 0:
        options["delivery.timeout.ms"] = str(_NO_LIMIT)
    elif room <= 0:
        raise ConfigError("message.timeout.ms must exceed linger.ms: Java's producer refuses other values")
    elif room < ms.get("request.timeout.ms", _REQUEST_TIMEOUT_MS):
        options["request.timeout.ms"] = str(room)


def _refuse(conf: Mapping[str, Any]) -> None:
    if conf.get("transactional.id"):
        raise ConfigError("transactional.id: Spark's Kafka sink has no transactions; remove the setting")
    if option_text(conf.get("enable.ssl.certificate.verification", True)) == "false":
        raise ConfigError("enable.ssl.certificate.verification: Java's clients always verify the brokers' certificates")
    known = {*_BOTH, *_OF_ROLE["producer"], *_OF_ROLE["consumer"], *_SECURITY, *_LEFT_OUT}
    for name, value in conf.items():
        ignored = name.endswith(_CALLBACKS) or name.startswith(_LEFT_OUT_PREFIXES)
        if value is not None and name not in known and (name == "oauth_cb" or not ignored):
            raise ConfigError(
                f"{name}: no known equivalent for Spark's Kafka connector; remove it, or set Java's equivalent as the "
                f"option {PREFIX}NAME"
            )


def _security(conf: Mapping[str, Any]) -> dict[str, str]:
    protocol = str(conf.get("security.protocol") or "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"security.protocol must be one of {', '.join(PROTOCOLS)}, not {protocol!r}")
    if protocol == "PLAINTEXT":
        return {}
    tls = _tls(conf) if protocol.endswith("SSL") else {}
    sasl = _sasl(conf) if protocol.startswith("SASL") else {}
    return {"security.protocol": protocol, **tls, **sasl}


def _tls(conf: Mapping[str, Any]) -> dict[str, str]:
    options: dict[str, str] = {}
    if location := conf.get("ssl.ca.location"):
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(location)}
    elif pem := conf.get("ssl.ca.pem"):
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": str(pem)}
    certificate, key = _pem(conf, "ssl.certificate"), _pem(conf, "ssl.key")
    if bool(certificate) != bool(key):
        raise ConfigError(
            "a certificate needs its key: set ssl.certificate.location and ssl.key.location, or ssl.certificate.pem "
            "and ssl.key.pem"
        )
    if certificate and key:
        options |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate}
        options["ssl.keystore.key"] = _HIDDEN + key
        if password := conf.get("ssl.key.password"):
            options["ssl.key.password"] = str(password)
    if (algorithm := conf.get("ssl.endpoint.identification.algorithm")) is not None:
        options["ssl.endpoint.identification.algorithm"] = "" if str(algorithm).lower() == "none" else str(algorithm)
    return options


def _pem(conf: Mapping[str, Any], name: str) -> str | None:
    text, location = conf.get(f"{name}.pem"), conf.get(f"{name}.location")
    try:
        return str(text) if text else Path(location).read_text(encoding="ascii") if location else None
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{name}.location: {error}") from error


def _sasl(conf: Mapping[str, Any]) -> dict[str, str]:
    mechanism = str(conf.get("sasl.mechanism") or conf.get("sasl.mechanisms") or "GSSAPI").upper()
    if (login := _SASL_LOGIN.get(mechanism)) is None:
        raise ConfigError(
            f"sasl.mechanism {mechanism} cannot be translated for Spark's Kafka connector; pass the options "
            f"{PREFIX}sasl.mechanism and {PREFIX}sasl.jaas.config, and remove sasl.* and security.protocol from conf"
        )
    user, password = (_jaas(conf, name) for name in ("sasl.username", "sasl.password"))
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{login} required username={user} password={password};"}


def _jaas(conf: Mapping[str, Any], name: str) -> str:
    if conf.get(name) is None:
        raise ConfigError(f"{name} is missing, which SASL requires")
    text = str(conf[name]).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
