"""Requests that only the controller of the cluster carries out, to any broker.

A broker of a KRaft cluster passes them on. With ZooKeeper the controller is a broker, the others refuse, and each names
it in its metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from modeaware.errors import ClusterError, ErrorCode
from modeaware.wire.brokers.client import Ask, Brokers
from modeaware.wire.brokers.messages import MetadataRequest


class Route(NamedTuple):
    """A broker that answers, and the one that it takes for the controller (below 0: it does not say)."""

    node: int
    controller: int


def route_to_controller(brokers: Brokers) -> Route:
    """Where to send requests for the controller.

    Raises:
        ClusterError: no broker answered.
    """
    node, cluster = brokers.ask_any(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    return Route(node, int(cluster.controller_id))


def ask_controller(
    brokers: Brokers,
    route: Route,
    request: Callable[[], Any],
    codes: Callable[[Any], Iterable[int]],
    *,
    once: bool = True,
    timeout_s: float | None = None,
) -> Any:
    """The response, from the second broker of the route where the first is not the controller; a :class:`ClusterError`
    in its place where it did not come.

    Args:
        request: makes the message, anew each time it is sent; what it raises keeps it from being sent.
        codes: the error codes in a response. Where all of them are NOT_CONTROLLER nothing was done.
        once: as of :class:`~modeaware.wire.brokers.link.Ask`.
        timeout_s: as of :meth:`~modeaware.wire.brokers.client.Brokers.ask_each`, for each of the two.

    Raises:
        ClusterError: not even a connection to the cluster could be made.
    """
    (answer,) = brokers.ask_each([Ask(route.node, request(), once)], timeout_s)
    if isinstance(answer, ClusterError) or route.controller < 0 or set(codes(answer)) != {ErrorCode.NOT_CONTROLLER}:
        return answer
    (answer,) = brokers.ask_each([Ask(route.controller, request(), once)], timeout_s)
    return answer
