"""The settings of our clients of the mode log: fixed settings, and the application's own connection settings."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Mapping
from typing import Any

from modeaware.librdkafka import NO_ANSWER, KafkaError
from modeaware.wire.capabilities import CLIENT_ID, SOFTWARE_NAME, UNDERLYING_NAME
from modeaware.wire.security import bootstrap_servers

# The connection settings of librdkafka (its CONFIGURATION.md) and confluent_kafka. All other settings are about
# producing, consuming, groups, callbacks, logging or statistics, and are not passed on.
_EXACT = (
    "bootstrap.servers",
    "metadata.broker.list",
    "oauth_cb",
    "client.rack",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "broker.version.fallback",
    "enable.sparse.connections",
)
# Settings with these prefixes distinguish clusters and users (see cluster_key).
_IDENTITY_PREFIXES = ("security.", "sasl.", "ssl.", "ssl_", "enable.ssl.", "enable.sasl.", "https.")
_PREFIXES = (
    *_IDENTITY_PREFIXES,
    "socket.",
    "broker.address.",
    "reconnect.backoff.",
    "retry.backoff.",
    "api.version.",
    "metadata.recovery.",
)

_DEFAULTS: dict[str, Any] = {
    # An endpoint that refuses old clients recognises mode-aware clients by this name. It returns no leader
    # to other clients, for topics with retired partitions.
    SOFTWARE_NAME: UNDERLYING_NAME,
    # The backoff limits how late an unreachable log is read again; the timeout, how late a frozen broker is detected.
    "reconnect.backoff.max.ms": 2_000,
    "socket.timeout.ms": 15_000,
}


def shared_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connection settings of ``conf``, which any client of the same cluster can use.

    ``oauth_cb`` is the only callback among them.
    """
    return {name: value for name, value in conf.items() if name in _EXACT or name.startswith(_PREFIXES)}


def connection_conf(conf: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    """Return the settings of ``conf`` with which another client reaches the same cluster as the same user."""
    # The package logs each error once; librdkafka's own log lines would repeat the error.
    quiet = {"log_level": 0, "client.id": f"{conf.get('client.id') or CLIENT_ID}-{suffix}"}
    return {**_DEFAULTS, **shared_settings(conf), **quiet}


def tail_conf(conf: Mapping[str, Any], *, fetch_wait_ms: int) -> dict[str, Any]:
    """Return the settings of a consumer that reads the mode log for the client configured by ``conf``.

    librdkafka requires a group id. The consumer never joins or commits, so the user needs no right on the group; the id
    is unique. The consumer reads committed records only, and creates no topic.
    """
    return {
        **connection_conf(conf, "modes"),
        "group.id": f"modeaware-modes-{uuid.uuid4().hex}",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": fetch_wait_ms,
        # Report an unknown topic at once, not after librdkafka's 30 s of retries.
        "topic.metadata.propagation.max.ms": 0,
    }


def cluster_key(conf: Mapping[str, Any], topic: str) -> Hashable:
    """Return the key of the :class:`~modeaware.modelog.reader.Tail` for a client. Clients share one tail if their
    bootstrap servers (in any order), security settings and mode log are equal."""
    identity = {
        name: _hashable(value) if callable(value) else str(value)
        for name, value in conf.items()
        if name == "oauth_cb" or name.startswith(_IDENTITY_PREFIXES)
    }
    servers = frozenset(server.strip() for server in bootstrap_servers(conf).split(","))
    return (servers, frozenset(identity.items()), topic)


def _hashable(value: object) -> Hashable:
    try:
        hash(value)
    except TypeError:  # a dataclass with a list, say
        return id(value)
    return value


def is_transient(error: KafkaError) -> bool:
    """Return whether the same request may succeed later: no broker answered, or the error is retriable."""
    return error.code() in NO_ANSWER or bool(error.retriable())
