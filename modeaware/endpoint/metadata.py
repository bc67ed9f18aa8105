"""Metadata as the endpoint answers it: KIP-694's version 10 with the modes, and what clients below it are answered.

Every answer is made from the answer of the broker to this very user, so nobody is told of a topic that the broker does
not tell him of. Nothing here does IO.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Hashable, Sequence

from cachetools import LRUCache

from modeaware.endpoint.desk import Desk
from modeaware.endpoint.limits import Limits
from modeaware.endpoint.splice import Additions, Node, with_controller, with_modes
from modeaware.errors import ErrorCode, ModeAwareError
from modeaware.wire import kip694, stock
from modeaware.wire.frames import MalformedFrame

_UPSTREAM_VERSION = 9
_CONTROLLER_SINCE = 1
_ENTRY_BYTES = 500  # what an entry takes beside the answer itself
_DECODED_FACTOR = 32
"""Bytes of memory for each byte of a Metadata request of many short names."""


class Answers:
    """Answers to Metadata and ApiVersions that were made already, for all connections of an endpoint.

    The latest used ones are kept. One thread uses it. A broker's answer that is the same to the byte, to whomever, gets
    the same answer while no mode has changed. Takes ``limits.cache_bytes`` at most.
    """

    def __init__(self, limits: Limits) -> None:
        self._kept: LRUCache[Hashable, bytes] = LRUCache(limits.cache_bytes, lambda body: len(body) + _ENTRY_BYTES)

    @property
    def size_bytes(self) -> int:
        """What is kept now."""
        return int(self._kept.currsize)

    def get(self, upstream: memoryview, circumstances: Hashable, make: Callable[[], bytes]) -> bytes:
        """The answer to ``upstream`` (what follows the correlation id) under ``circumstances``."""
        key = (hashlib.sha256(upstream).digest(), circumstances)
        body = self._kept.get(key)
        if body is None:
            body = make()
            if len(body) + _ENTRY_BYTES <= self._kept.maxsize:
                self._kept[key] = body
        return body


class ModesQuery:
    """One Metadata 10 request on its way.

    Args:
        payload: its frame.

    Raises:
        MalformedFrame: it is no such request, or asks for all topics that have a record and for some by name.
    """

    def __init__(self, payload: bytes) -> None:
        self.size_bytes = len(payload) * _DECODED_FACTOR
        """What it takes in memory, about."""
        self._header, self._request = kip694.decode_modes_request(payload)
        if self.modes_only and self._request.topics is not None:
            raise MalformedFrame("a Metadata request for the topics that have a mode record, and for topics by name")

    @property
    def correlation_id(self) -> int:
        return self._header.correlation_id

    @property
    def modes_only(self) -> bool:
        """Whether it is about all topics that have a mode record."""
        return bool(self._request.modes_only)

    def removed(self, desk: Desk) -> tuple[str, ...]:
        """Those of the topics it says are held whose record was taken back."""
        return desk.removed(self._request.held_topic_ids)

    @property
    def fresh(self) -> bool:
        """Whether the mode log has to be read to its end first."""
        return bool(self._request.fresh)

    def question(self, desk: Desk, correlation_id: int) -> bytes:
        """The Metadata request the broker is asked in place of this one."""
        asked = self._request
        if self.modes_only:
            topics: list[tuple[str]] | None = [(name,) for name in desk.records() if _is_text(name)]
            creation = False
        else:
            topics = None if asked.topics is None else [(topic.name,) for topic in asked.topics]
            creation = asked.allow_auto_topic_creation
        request = stock.MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=creation,
            include_cluster_authorized_operations=asked.include_cluster_authorized_operations,
            include_topic_authorized_operations=asked.include_topic_authorized_operations,
        )
        return stock.encode_request(request, _UPSTREAM_VERSION, correlation_id, self._header.client_id)


def moded(
    upstream: bytes,
    correlation_id: int,
    desk: Desk,
    answers: Answers,
    *,
    known_only: bool,
    removed: tuple[str, ...] = (),
) -> bytes:
    """The broker's answer (a whole frame) to a :class:`ModesQuery`'s question, with the modes.

    Args:
        correlation_id: the query's.
        known_only, removed: as :class:`~modeaware.endpoint.splice.Additions` has them.

    Raises:
        MalformedFrame: it cannot be read.
    """
    added = Additions(*_active(desk), known_only, removed)
    body = answers.get(
        memoryview(upstream)[4:],
        ("modes", desk.version(), added),
        lambda: with_modes(upstream, desk.views, added),
    )
    return struct.pack(">iB", correlation_id, 0) + body


def served(upstream: bytes, version: int, desk: Desk) -> bytes:
    """The broker's answer (a whole frame) for a client that does not know modes, when such clients are served.

    The controller in it is the active one's endpoint, so that a growth (KIP-195) reaches it and not a broker, which
    knows of no modes. All else is as it came; and all of it, where nobody is known who takes changes. Not for a
    librdkafka (:class:`~modeaware.endpoint.api_versions.Awareness`).

    Raises:
        MalformedFrame: it cannot be read.
    """
    try:
        node, _ = _active(desk)
    except ModeAwareError:  # the mode log has not been read yet
        return upstream
    if node is None or version < _CONTROLLER_SINCE:
        return upstream
    # By one id, whoever is asked: a client that asks the active one next must not take the node for gone.
    return with_controller(upstream, version, Node(kip694.ENDPOINT_NODE_ID, node.host, node.port))


def turned_away(upstream: bytes, version: int, desk: Desk, answers: Answers) -> bytes:
    """The broker's answer (a whole frame) for a client that does not know modes, when such clients are refused.

    A topic with a partition that takes no writes has no leader. The brokers are the leaders that are left, and this
    endpoint, so that a client whose topics are all refused keeps asking here. The controller is the active one's
    endpoint, or this one, where another is not known.

    Raises:
        MalformedFrame: it cannot be read.
    """
    here = Node(kip694.ENDPOINT_NODE_ID, *desk.advertised)
    added = dict.fromkeys((here, _active(desk)[0] or here))
    body = answers.get(
        memoryview(upstream)[4:],
        ("turned away", version, desk.version(), *added),
        lambda: _turned_away(upstream, version, desk, list(added)),
    )
    return upstream[:4] + body


def _turned_away(upstream: bytes, version: int, desk: Desk, added: Sequence[Node]) -> bytes:
    correlation_id, answer = stock.decode_response(upstream, stock.METADATA_KEY, version)
    for topic in answer.topics:
        if not topic.error_code and not desk.views(topic.name).all_writable:  # an error: he may not be told of it
            topic.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
            topic.partitions = []
    leaders = {partition.leader_id for topic in answer.topics for partition in topic.partitions}
    nodes = [
        type(answer).MetadataResponseBroker(
            version=version, node_id=node.node_id, host=node.host, port=node.port, rack=None
        )
        for node in added
    ]
    answer.brokers = [*(broker for broker in answer.brokers if broker.node_id in leaders), *nodes]
    answer.controller_id = added[-1].node_id
    return stock.encode_response(answer, version, correlation_id)[4:]


def _active(desk: Desk) -> tuple[Node | None, str | None]:
    """The node that takes changes and its controller's name; None where nobody who does is known."""
    if desk.is_active():
        return Node(kip694.ENDPOINT_NODE_ID, *desk.advertised), desk.controller_id
    claim = desk.claim()
    if claim is None:
        return None, None
    node = None if claim.host is None else Node(kip694.ACTIVE_NODE_ID, claim.host, claim.port)
    return node, claim.controller_id


def _is_text(name: str) -> bool:
    """Whether it can stand in a frame: JSON can say what UTF-8 cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
