"""Metadata as the endpoint answers it: KIP-694's version 10 with the modes, and the versions below it.

Every response is made from the broker's response to this very user, so no user learns of a topic that the broker would
not show. Brokers are asked for topic ids as well: a record counts for the topic id that it was written for, and a topic
of another id that has its name now is answered as one without a record. Nothing here does IO.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from modeaware.endpoint.facade import ControllerView
from modeaware.endpoint.limits import EndpointLimits
from modeaware.endpoint.splice import Additions, Node, of_live, with_controller, with_modes, without_ids
from modeaware.errors import ErrorCode, ModeAwareError
from modeaware.wire import codec
from modeaware.wire.frames import MalformedFrame

_CONTROLLER_SINCE = 1
_CREATION_ASKED_SINCE = 4
_NO_LISTENER_SINCE = 6
"""Below it, brokers return LEADER_NOT_AVAILABLE in place of LISTENER_NOT_FOUND."""
_ENTRY_BYTES = 500  # of an entry beside the response itself
_DECODED_FACTOR = 32
"""Bytes of memory for each byte of a Metadata request of many short names."""


class Answers:
    """A cache of Metadata and ApiVersions responses, for all connections of an endpoint. For one thread.

    A broker's response that is the same to the byte gets the same response from here while no mode has changed. Keeps
    the latest used ones, up to ``limits.cache_bytes``.
    """

    def __init__(self, limits: EndpointLimits) -> None:
        self._kept: LRUCache[Hashable, bytes] = LRUCache(limits.cache_bytes, lambda body: len(body) + _ENTRY_BYTES)

    @property
    def size_bytes(self) -> int:
        return int(self._kept.currsize)

    def get(self, upstream: memoryview, circumstances: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the response to ``upstream`` (what follows the correlation id) under ``circumstances``."""
        key = (hashlib.sha256(upstream).digest(), circumstances)
        body = self._kept.get(key)
        if body is None:
            body = make()
            if len(body) + _ENTRY_BYTES <= self._kept.maxsize:
                self._kept[key] = body
        return body


class ModesQuery:
    """One Metadata 10 request.

    Attributes:
        size_bytes: its size in memory, about.
        modes_only: it is about all topics that have a mode record.
        fresh: the mode log has to be read to its end first.
    """

    def __init__(self, payload: bytes) -> None:
        self.size_bytes = len(payload) * _DECODED_FACTOR
        self._header, self._request = codec.decode_request(payload)
        self.correlation_id = self._header.correlation_id
        self.modes_only = bool(self._request.modes_only)
        self.fresh = bool(self._request.fresh)
        if self.modes_only and self._request.topics is not None:
            raise MalformedFrame("a Metadata request for the topics that have a mode record, and for topics by name")

    def removed(self, controller: ControllerView) -> tuple[str, ...]:
        """Return those of the topics whose modes the client holds that have no record any more."""
        return controller.removed(self._request.held_topic_ids)

    def question(self, controller: ControllerView, correlation_id: int, version: int) -> bytes:
        """Return the Metadata request in ``version`` that is sent to the broker instead."""
        asked = self._request
        if self.modes_only:
            topics: list[str] | None = [name for name in controller.records() if _is_encodable(name)]
        else:
            topics = None if asked.topics is None else [topic.name for topic in asked.topics]
        return codec.metadata_question(
            version,
            correlation_id,
            self._header.client_id,
            topics,
            creation=asked.allow_auto_topic_creation and not self.modes_only,
            cluster_operations=asked.include_cluster_authorized_operations,
            topic_operations=asked.include_topic_authorized_operations,
        )


def with_modes_of(
    upstream: bytes,
    correlation_id: int,
    controller: ControllerView,
    answers: Answers,
    *,
    version: int,
    known_only: bool,
    removed: tuple[str, ...] = (),
) -> bytes:
    """Return the broker's response (a whole frame) to a :class:`ModesQuery`'s question, with the modes."""
    added = Additions(*_active(controller), known_only, removed)
    body = answers.get(
        memoryview(upstream)[4:],
        ("modes", version, controller.version(), added),
        lambda: with_modes(upstream, controller.views, added, with_ids=version >= codec.METADATA_WITH_IDS),
    )
    return struct.pack(">iB", correlation_id, 0) + body


def served(upstream: bytes, version: int, controller: ControllerView) -> bytes:
    """Return the broker's response (a whole frame) for a client that does not read modes, when such clients are served.

    The controller in it is the active one's endpoint, so that a growth (KIP-195) reaches it and not a broker, which
    does not know modes. The rest is unchanged; all of it where no endpoint that takes changes is known. Not for a
    librdkafka (:class:`~modeaware.endpoint.api_versions.Awareness`).
    """
    try:
        node, _ = _active(controller)
    except ModeAwareError:  # the mode log has not been read yet
        return upstream
    if node is None or version < _CONTROLLER_SINCE:
        return upstream
    # By one id at every endpoint: a client that asks the active one next must not close the connection to the node.
    return with_controller(upstream, version, Node(codec.ENDPOINT_NODE_ID, node.host, node.port))


def gate_question(payload: bytes, correlation_id: int, version: int) -> bytes:
    """Return the question in ``version`` that replaces the Metadata request in ``payload`` of an old client."""
    header, asked = codec.decode_request(payload)
    everything = asked.topics is None or (header.api_version == 0 and not asked.topics)
    return codec.metadata_question(
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
    """A Metadata request of a client that does not read modes, where such clients are refused."""

    correlation_id: int
    version: int
    asked: int

    def refused(self, upstream: bytes, controller: ControllerView, answers: Answers) -> bytes:
        """Return the response for the client, from the broker's (a whole frame).

        A topic with a partition that takes no writes has no leader. The brokers are the remaining leaders and this
        endpoint, so that a client whose topics are all refused keeps asking here. The controller is the active one's
        endpoint, or this one, where another is not known.
        """
        here = Node(codec.ENDPOINT_NODE_ID, *controller.advertised)
        added = dict.fromkeys((here, _active(controller)[0] or here))
        body = answers.get(
            memoryview(upstream)[4:],
            ("refused", self.version, self.asked, controller.version(), *added),
            lambda: self._refused(upstream, controller, list(added)),
        )
        return struct.pack(">i", self.correlation_id) + body

    def _refused(self, upstream: bytes, controller: ControllerView, added: Sequence[Node]) -> bytes:
        upstream, ids = without_ids(upstream) if self.asked >= codec.METADATA_WITH_IDS else (upstream, {})
        _, answer = codec.decode_response(upstream, codec.METADATA_KEY, codec.METADATA_WITHOUT_IDS)
        for topic in answer.topics:
            if topic.error_code:  # the user may not be authorized to learn more
                continue
            if not of_live(controller.views(topic.name), ids.get(topic.name)).all_writable:
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
        return codec.encode_response(answer, self.version, self.correlation_id)[4:]


def _active(controller: ControllerView) -> tuple[Node | None, str | None]:
    """The node that takes changes and its controller's name; None where none is known."""
    if controller.is_active():
        return Node(codec.ENDPOINT_NODE_ID, *controller.advertised), controller.controller_id
    claim = controller.claim()
    if claim is None:
        return None, None
    node = None if claim.host is None else Node(codec.ACTIVE_NODE_ID, claim.host, claim.port)
    return node, claim.controller_id


def _is_encodable(name: str) -> bool:
    """Whether a frame can hold the name: JSON has strings that UTF-8 has not."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
