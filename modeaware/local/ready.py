"""Waiting until brokers serve."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Mapping

from modeaware.errors import LocalKafkaError
from modeaware.librdkafka import KafkaException
from modeaware.librdkafka_admin import AdminClient

_POLL_S = 0.02


def wait_until_serving(
    address: str,
    node_ids: Collection[int],
    *,
    deadline: float,
    cluster_id: str | None = None,
    check: Callable[[], None] = lambda: None,
    client_config: Mapping[str, str] | None = None,
) -> None:
    """Wait until the broker at ``address`` answers Metadata and lists all of ``node_ids`` (registered and unfenced).

    Args:
        address: ``host:port``.
        node_ids: brokers that have to be there; empty = any answer will do.
        deadline: on :func:`time.monotonic`'s clock, seconds.
        cluster_id: answers of another cluster do not count: its broker was faster at taking the port.
        check: called between tries; raises when waiting is pointless.
        client_config: librdkafka settings to connect with, where plaintext will not do.

    Raises:
        LocalKafkaError: not by the deadline; or what ``check`` raises.
    """
    _wait_for_listener(address, deadline, check)
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": address,
        "log_level": 0,  # a broker that is still starting is no news
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        **(client_config or {}),
    }
    admin = AdminClient(settings)
    while True:
        check()
        try:
            metadata = admin.list_topics(timeout=1)
        except KafkaException as error:
            reason = str(error)
        else:
            ours = cluster_id is None or metadata.cluster_id == cluster_id
            if ours and set(metadata.brokers).issuperset(node_ids):
                return
            reason = f"it lists the brokers {sorted(metadata.brokers)}, expected {sorted(node_ids)}"
            if not ours:
                reason = f"a broker of another cluster, {metadata.cluster_id}, answers there"
        if time.monotonic() > deadline:
            raise LocalKafkaError(f"The broker at {address} was not ready in time: {reason}")
        time.sleep(_POLL_S)  # a broker that starts tells nobody when it is done


def _wait_for_listener(address: str, deadline: float, check: Callable[[], None]) -> None:
    host, _, port = address.rpartition(":")
    while True:
        check()
        try:
            with socket.create_connection((host, int(port)), timeout=1):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise LocalKafkaError(f"Nothing listened at {address} in time") from error
        time.sleep(_POLL_S)  # a port opens without telling anybody
