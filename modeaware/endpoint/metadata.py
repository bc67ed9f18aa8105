"""Metadata as the endpoint answers it: KIP-694's version 10 with the modes, and what clients below it are answered.

Every answer is made from the answer of the broker to this very user, so nobody is told of a topic that the broker does
not tell him of. Brokers are asked for topic ids as well: a record counts for the topic id that it was written for, and
a topic of another id that has its name now is answered as one without a record. Nothing here does IO.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from modeaware.endpoint.desk import Desk
from modeaware.endpoint.limits import Limits
from modeaware.endpoint.splice import Additions, Node, of_live, with_controller, with_modes, without_ids
from modeaware.errors import ErrorCode, ModeAwareError
from modeaware.wire import kip694, stock
from modeaware.wire.frames import MalformedFrame

_CONTROLLER_SINCE = 1
_CREATION_ASKED_SINCE = 4
_NO_LISTENER_SINCE = 6
"""Below it, brokers tell LEADER_NOT_AVAILABLE in place of LISTENER_NOT_FOUND."""
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

    def question(self, desk: Desk, correlation_id: int, version: int) -> bytes:
        """The Metadata request, in ``version``, that the broker is asked in place of this one."""
        asked = self._request
        if self.modes_only:
            topics: list[str] | None = [name for name in desk.records() if _is_text(name)]
        else:
            topics = None if asked.topics is None else [topic.name for topic in asked.topics]
        return stock.metadata_question(
            version,
            correlation_id,
            self._header.client_id,
            topics,
            creation=asked.allow_auto_topic_creation and not self.modes_only,
            cluster_operations=asked.include_cluster_authorized_operations,
            topic_operations=asked.include_topic_authorized_operations,
        )


def moded(
    upstream: bytes,
    correlation_id: int,
    desk: Desk,
    answers: Answers,
    *,
    version: int,
    known_only: bool,
    removed: tuple[str, ...] = (),
) -> bytes:
    """The broker's answer (a whole frame) to a :class:`ModesQuery`'s question, with the modes.

    Args:
        correlation_id: the query's.
        version: of the question.
        known_only, removed: as :class:`~modeaware.endpoint.splice.Additions` has them.

    Raises:
        MalformedFrame: it cannot be read.
    """
    added = Additions(*_active(desk), known_only, removed)
    body = answers.get(
        memoryview(upstream)[4:],
        ("modes", version, desk.version(), added),
        lambda: with_modes(upstream, desk.views, added, with_ids=version >= stock.METADATA_WITH_IDS),
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


def gate_question(payload: bytes, correlation_id: int, version: int) -> bytes:
    """The question in ``version`` that stands in for the Metadata request in ``payload``, of a client that does not
    know modes.

    Raises:
        MalformedFrame: it cannot be read.
    """
    header, asked = stock.decode_request(payload)
    everything = asked.topics is None or (header.api_version == 0 and not asked.topics)
    return stock.metadata_question(
        version,
        correlation_id,
        header.client_id,
        None if everything else [topic.name for topic in asked.topics],
        creation=header.api_version < _CREATION_ASKED_SINCE or asked.allow_auto_topic_creation,
        cluster_operations=asked.include_cluster_authorized_operations,
        topic_operations=asked.include_topic_authorized_operations,
    )


@dataclass(frozen=True)
class Gate:
    """A Metadata request of a client that does not know modes, where such clients are refused.

    Attributes:
        correlation_id, version: of the client's request.
        asked: the version of the question that the broker answers.
    """

    correlation_id: int
    version: int
    asked: int

    def turned_away(self, upstream: bytes, desk: Desk, answers: Answers) -> bytes:
        """The broker's answer (a whole frame) as the client is told it.

        A topic with a partition that takes no writes has no leader. The brokers are the leaders that are left, and
        this endpoint, so that a client whose topics are all refused keeps asking here. The controller is the active
        one's endpoint, or this one, where another is not known.

        Raises:
            MalformedFrame: it cannot be read.
        """
        here = Node(kip694.ENDPOINT_NODE_ID, *desk.advertised)
        added = dict.fromkeys((here, _active(desk)[0] or here))
        body = answers.get(
            memoryview(upstream)[4:],
            ("turned away", self.version, self.asked, desk.version(), *added),
            lambda: self._turned_away(upstream, desk, list(added)),
        )
        return struct.pack(">i", self.correlation_id) + body

    def _turned_away(self, upstream: bytes, desk: Desk, added: Sequence[Node]) -> bytes:
        upstream, ids = without_ids(upstream) if self.asked >= stock.METADATA_WITH_IDS else (upstream, {})
        _, answer = stock.decode_response(upstream, stock.METADATA_KEY, stock.METADATA_WITHOUT_IDS)
        for topic in answer.topics:
            if topic.error_code:  # he may not be told of it
                continue
            if not of_live(desk.views(topic.name), ids.get(topic.name)).all_writable:
                topic.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
                topic.partitions = []
            if self.version < _NO_LISTENER_SINCE:
                for partition in topic.partitions:
                    if partition.error_code == ErrorCode.LISTENER_NOT_FOUND:
                        partition.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
        leaders = {partition.leader_id for topic in answer.topics for partition in topic.partitions}
        broker = type(answer).MetadataResponseBroker
        nodes = [broker(version=self.version, node_id=n.node_id, host=n.host, port=n.port, rack=None) for n in added]
        answer.brokers = [*(broker for broker in answer.brokers if broker.node_id in leaders), *nodes]
        answer.controller_id = added[-1].node_id
        return stock.encode_response(answer, self.version, self.correlation_id)[4:]


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
