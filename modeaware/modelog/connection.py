"""How our own clients of the mode log connect: with those settings of the client they serve that say how to connect."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Mapping
from typing import Any

from modeaware.librdkafka import NO_ANSWER, KafkaError
from modeaware.wire.capabilities import CLIENT_ID, SOFTWARE_NAME, UNDERLYING_NAME
from modeaware.wire.security import bootstrap_servers

# Settings of librdkafka (its CONFIGURATION.md) and confluent_kafka that say where the cluster is and how to get there.
# All others are about producing, consuming, groups, callbacks, logging or statistics and stay with the client.
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
# Of the prefixes, these tell clusters and users apart (see cluster_key).
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
    # An endpoint that refuses old clients would tell this one that topics with retired partitions have no leader.
    SOFTWARE_NAME: UNDERLYING_NAME,
    # How soon a log that was out of reach is read again, and how soon a frozen broker is noticed.
    "reconnect.backoff.max.ms": 2_000,
    "socket.timeout.ms": 15_000,
}


def shared_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of ``conf`` with which any client reaches the same cluster; no callback but ``oauth_cb``."""
    return {name: value for name, value in conf.items() if name in _EXACT or name.startswith(_PREFIXES)}


def connection_conf(conf: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    """Return the settings of ``conf`` with which another client reaches the same cluster as the same user."""
    # What goes wrong is reported once by us; librdkafka's own lines would repeat the client's.
    quiet = {"log_level": 0, "client.id": f"{conf.get('client.id') or CLIENT_ID}-{suffix}"}
    return {**_DEFAULTS, **shared_settings(conf), **quiet}


def tail_conf(conf: Mapping[str, Any], *, fetch_wait_ms: int) -> dict[str, Any]:
    """Return the settings of a consumer that reads the mode log for the client configured by ``conf``.

    Its group is a formality that librdkafka requires: the id is unique, nothing is ever committed, and a user without
    rights on it can read all the same. It reads committed records only, and creates no topic.
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
        # An unknown topic is news at once, not after 30 s of hoping.
        "topic.metadata.propagation.max.ms": 0,
    }


def cluster_key(conf: Mapping[str, Any], topic: str) -> Hashable:
    """Return what clients share that share one tail: bootstrap servers (in any order), security settings, log."""
    identity = {
        name: (value if isinstance(value, Hashable) else id(value)) if callable(value) else str(value)
        for name, value in conf.items()
        if name == "oauth_cb" or name.startswith(_IDENTITY_PREFIXES)
    }
    servers = frozenset(server.strip() for server in bootstrap_servers(conf).split(","))
    return (servers, frozenset(identity.items()), topic)


def is_transient(error: KafkaError) -> bool:
    """Return whether the same request may succeed later: there was no answer, or a retriable one."""
    return error.code() in NO_ANSWER or bool(error.retriable())
