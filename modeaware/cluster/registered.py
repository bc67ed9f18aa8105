"""Which brokers the cluster has: those that are alive, and those it remembers though they are down (KIP-1073)."""

from __future__ import annotations

from dataclasses import dataclass

from modeaware.cluster.answers import refusal
from modeaware.errors import ClusterError, ErrorCode
from modeaware.wire.brokers.client import Brokers
from modeaware.wire.brokers.messages import DescribeClusterRequest, MetadataRequest
from modeaware.wire.kip694 import ACTIVE_NODE_ID, ENDPOINT_NODE_ID

_NO_BROKERS = (ENDPOINT_NODE_ID, ACTIVE_NODE_ID)


@dataclass(frozen=True)
class RegisteredBroker:
    """A broker, its rack (None: it has none), and whether it is alive: registered and not fenced."""

    node_id: int
    rack: str | None
    live: bool


@dataclass(frozen=True)
class Registered:
    """The brokers by id; ``complete``: those that are down are among them, so that others are not registered at all."""

    brokers: dict[int, RegisteredBroker]
    complete: bool


def registered_brokers(brokers: Brokers) -> Registered:
    """Ask some broker. Those before Kafka 4.0 tell of live brokers alone.

    Raises:
        ClusterError: none answered, or it refused.
    """
    try:
        answer = brokers.ask(DescribeClusterRequest(include_fenced_brokers=True, min_version=2))
    except ClusterError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return _live_brokers(brokers)
    if answer.error_code:
        raise refusal("describe the cluster", answer.error_code, answer.error_message)
    listed = (RegisteredBroker(int(b.broker_id), b.rack, not b.is_fenced) for b in answer.brokers)
    return Registered({broker.node_id: broker for broker in listed}, complete=True)


def _live_brokers(brokers: Brokers) -> Registered:
    answer = brokers.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    listed = (RegisteredBroker(int(b.node_id), b.rack, True) for b in answer.brokers)
    return Registered({b.node_id: b for b in listed if b.node_id not in _NO_BROKERS}, complete=False)
