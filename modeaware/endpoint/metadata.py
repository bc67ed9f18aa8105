"""The endpoint's Metadata responses: KIP-694's version 10 with the modes, and the versions below 10.

Every response is made from the broker's response to the same user, so it lists no topic that the broker would hide
from the user. Only the entry of a replaced topic names another topic: the new one. Brokers since Kafka 2.8 return topic
ids. A mode record counts only for its own topic id: if another topic has the name now, the response treats that topic
as one without a record.

KIP-694's version 10 is version 9 with a mode at the end of each partition. The broker's response is version 9, or
Kafka's own 10, which is version 9 with a topic id in each topic. Only the parts that change are decoded, because one
thread makes the responses for all clients, and a response may contain thousands of partitions. Nothing here does IO.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from modeaware.endpoint.facade import ControllerView
from modeaware.endpoint.limits import EndpointLimits
from modeaware.errors import ErrorCode, ModeAwareError
from modeaware.modes import PartitionMode
from modeaware.topic_view import NO_EPOCH, Moved, ReplacedBy, TopicView, known_id
from modeaware.wire import codec
from modeaware.wire.codec import Header
from modeaware.wire.frames import INT16, INT32, Cursor, MalformedFrame, varint

_CONTROLLER_SINCE = 1
_CLUSTER_ID_SINCE = 2
_THROTTLE_TIME_SINCE = 3
_CREATION_ASKED_SINCE = 4
_NO_LISTENER_SINCE = 6
"""In versions below 6, brokers return LEADER_NOT_AVAILABLE instead of LISTENER_NOT_FOUND."""
_COMPACT_SINCE = 9
_ENTRY_BYTES = 500  # of memory for a cache entry, in addition to the response
_DECODED_FACTOR = 32
"""A decoded Metadata request of many short names takes this many bytes of memory for each byte on the wire."""
_LISTED = struct.Struct(">hiii")  # error code, index, leader, leader epoch
_EMPTY_ARRAYS = b"\1\1\1"
_EPOCHS = struct.Struct(">BBqBBq")  # the tags ControllerEpoch and ModeEpoch
_MODES = {mode: struct.pack(">b", mode) for mode in PartitionMode}
_READ_WRITE = b"\0\0"  # the mode, and no tagged field
_NONE = -1
_NO_ERROR = INT16.pack(0)
_ID_BYTES = 16
_NO_PLAIN_STRING = b"\xff\xff"
_UNKNOWN = (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))


class Answers:
    """A cache of Metadata and ApiVersions responses, for all connections of an endpoint. For one thread.

    While the modes do not change, brokers' responses with the same bytes share one response of the endpoint. The cache
    keeps the endpoint's most recently used responses, up to ``limits.cache_bytes``.
    """

    def __init__(self, limits: EndpointLimits) -> None:
        self._kept: LRUCache[Hashable, bytes] = LRUCache(limits.cache_bytes, lambda body: len(body) + _ENTRY_BYTES)

    def get(self, upstream: memoryview, circumstances: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the endpoint's response made from ``upstream``, a broker's response without the correlation id.

        ``circumstances`` is all else that decides the response. ``make`` makes a response that the cache lacks."""
        key = (hashlib.sha256(upstream).digest(), circumstances)
        body = self._kept.get(key)
        if body is None:
            body = make()
            if len(body) + _ENTRY_BYTES <= self._kept.maxsize:
                self._kept[key] = body
        return body


@dataclass(frozen=True)
class Node:
    node_id: int
    host: str
    port: int


@dataclass(frozen=True)
class Additions:
    """The additions to a response, beside the modes.

    Attributes:
        node: the active controller, added to the brokers and named by ``controller_id``. If None, the id is -1.
        controller_name: the ControllerName tag.
        known_only: whether to leave out topics that do not exist, or that the user may not see.
        removed: the RemovedTopicIds tag.
        groups: the groups that the client has named; the response states which of their gates are open.
    """

    node: Node | None
    controller_name: str | None
    known_only: bool
    removed: tuple[str, ...] = ()
    groups: frozenset[str] = frozenset()


class ModesQuery:
    """One Metadata 10 request.

    Attributes:
        size_bytes: the request's approximate size in memory.
        modes_only: whether the request is about all topics that have a mode record.
        fresh: whether the mode log must be read to its end before the response is made.
        groups: the groups that the client has named.
    """

    def __init__(self, payload: bytes) -> None:
        self.size_bytes = len(payload) * _DECODED_FACTOR
        self._header, self._request = codec.decode_request(payload)
        self.correlation_id = self._header.correlation_id
        self.modes_only = bool(self._request.modes_only)
        self.fresh = bool(self._request.fresh)
        self.groups = frozenset(self._request.groups or ())
        if self.modes_only and self._request.topics is not None:
            raise MalformedFrame("a Metadata request for the topics that have a mode record, and for topics by name")

    def removed(self, controller: ControllerView) -> tuple[str, ...]:
        """Return the ids of the topics whose modes the client holds, but whose record was removed."""
        return controller.removed(self._request.held_topic_ids)

    def question(self, controller: ControllerView, correlation_id: int, version: int) -> bytes:
        """Return the Metadata request in ``version`` that the endpoint sends to the broker instead of this one."""
        asked = self._request
        names = _names(asked)
        if self.modes_only:  # topic names are ASCII, but the JSON of a record may have strings that no frame can hold
            names = [name for name in controller.records() if name.isascii()]
        creation = asked.allow_auto_topic_creation and not self.modes_only
        return _question(self._header, asked, names, correlation_id, version, creation)


def old_question(payload: bytes, correlation_id: int, version: int) -> bytes:
    """Return the Metadata request in ``version`` that replaces an old client's request, ``payload``."""
    header, asked = codec.decode_request(payload)
    names = _names(asked) if asked.topics or header.api_version else None  # in version 0, no name means all
    creation = header.api_version < _CREATION_ASKED_SINCE or asked.allow_auto_topic_creation
    return _question(header, asked, names, correlation_id, version, creation)


def _names(asked: Any) -> list[str] | None:
    return None if asked.topics is None else [topic.name for topic in asked.topics]


def _question(
    header: Header, asked: Any, names: Iterable[str] | None, correlation_id: int, version: int, creation: bool
) -> bytes:
    return codec.metadata_question(
        version,
        correlation_id,
        header.client_id,
        names,
        creation=creation,
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
    groups: frozenset[str] = frozenset(),
) -> bytes:
    """Return the broker's response (a whole frame) to a :class:`ModesQuery`'s question, with the modes."""
    added = Additions(*_active(controller), known_only, removed, groups)
    body = answers.get(
        memoryview(upstream)[4:],
        ("modes", version, controller.version(), added),
        lambda: with_modes(upstream, controller.views, added, with_ids=version >= codec.METADATA_WITH_IDS),
    )
    return struct.pack(">iB", correlation_id, 0) + body


def served(upstream: bytes, version: int, controller: ControllerView) -> bytes:
    """Return the broker's response (a whole frame) for a client that does not read modes, if such clients are served.

    The response names the active controller's endpoint as the controller. So a growth (KIP-195) reaches that endpoint,
    and not a broker, which has no modes. If no endpoint that takes changes is known, the response is unchanged. Do not
    call this for a librdkafka client (:class:`~modeaware.endpoint.api_versions.Awareness` has the reason).
    """
    try:
        node, _ = _active(controller)
    except ModeAwareError:  # the mode log has not been read yet
        return upstream
    if node is None or version < _CONTROLLER_SINCE:
        return upstream
    # Every endpoint uses the same id, so that a client which moves to the active endpoint keeps its connection there.
    return _with_controller(upstream, version, Node(codec.ENDPOINT_NODE_ID, node.host, node.port))


def refused(upstream: bytes, header: Header, asked: int, controller: ControllerView, answers: Answers) -> bytes:
    """Return the broker's response (a whole frame, of version ``asked``) for a client that does not read modes, if such
    clients are refused; ``header`` is the header of the client's request.

    A topic with a partition that takes no writes is returned with LEADER_NOT_AVAILABLE and no partitions. The response
    lists the leaders of the other topics and this endpoint as brokers. So a client whose topics are all refused
    continues to send requests here. The controller in the response, also listed as a broker, is the active controller's
    endpoint, or this endpoint if that one is unknown.
    """
    here = Node(codec.ENDPOINT_NODE_ID, *controller.advertised)
    added = tuple(dict.fromkeys((here, _active(controller)[0] or here)))
    body = answers.get(
        memoryview(upstream)[4:],
        ("refused", header.api_version, asked, controller.version(), added),
        lambda: _refused(upstream, header.api_version, asked, controller, added),
    )
    return INT32.pack(header.correlation_id) + body


def _refused(upstream: bytes, version: int, asked: int, controller: ControllerView, added: Sequence[Node]) -> bytes:
    answer = codec.decode_metadata(upstream, asked)
    for topic in answer.topics:
        if topic.error_code:  # unchanged: the user may not be authorized to see more
            continue
        if not of_live(controller.views(topic.name), topic.topic_id).all_writable:
            topic.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
            topic.partitions = []
        if version < _NO_LISTENER_SINCE:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.LISTENER_NOT_FOUND:
                    partition.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
    leaders = {partition.leader_id for topic in answer.topics for partition in topic.partitions}
    broker = type(answer).MetadataResponseBroker
    nodes = [broker(version=version, node_id=n.node_id, host=n.host, port=n.port, rack=None) for n in added]
    answer.brokers = [*(broker for broker in answer.brokers if broker.node_id in leaders), *nodes]
    answer.controller_id = added[-1].node_id
    return codec.encode_response(answer, version, 0)[4:]


def _active(controller: ControllerView) -> tuple[Node | None, str | None]:
    """Return the endpoint that takes changes, and its controller's name; each is None if it is unknown."""
    if controller.is_active():
        return Node(codec.ENDPOINT_NODE_ID, *controller.advertised), controller.controller_id
    claim = controller.claim()
    if claim is None:
        return None, None
    node = None if claim.host is None else Node(codec.ACTIVE_NODE_ID, claim.host, claim.port)
    return node, claim.controller_id


# Bytes


def of_live(view: TopicView, live_id: object) -> TopicView:
    """Return ``view``, or a view without modes if the record's topic id is not the live topic's (invariant I8)."""
    if view.topic_id is None:
        return view
    live = known_id(live_id)
    return view if view.applies_to(live) else TopicView(view.topic, live)


def with_modes(answer: bytes, views: Callable[[str], TopicView], added: Additions, *, with_ids: bool = False) -> bytes:
    """Return the v10 body (the bytes after the response header) for a broker's response (a whole frame).

    A topic with an error is returned unchanged, without a mode: the user may lack the right to see it. If the record
    has another topic id, the topic is returned without modes and epochs, and with its own id. A deleted old topic is
    returned with the modes of its record, although brokers return "unknown" for it. Brokers return this error only to
    users that may describe the name, so the modes reveal nothing.
    """
    cursor = Cursor(answer)
    cursor.take(4)
    cursor.skip_tags()
    out = [cursor.take(4), *_brokers(cursor, added.node)]
    start = cursor.at
    cursor.string()  # the cluster id
    out += [answer[start : cursor.at], INT32.pack(added.node.node_id if added.node else _NONE)]
    cursor.take(4)
    topics = [topic for topic in _topics(cursor, views, added, with_ids) if topic]
    out += [varint(len(topics) + 1), *topics, cursor.take(4)]
    cursor.skip_tags()
    cursor.end()
    out += _answer_tags(added)
    return b"".join(out)


def _with_controller(answer: bytes, version: int, node: Node) -> bytes:
    """Return a broker's response to Metadata 1 to 9 (a whole frame) with ``node`` as a broker and as the controller."""
    cursor = Cursor(answer)
    cursor.take(4)
    if version >= _COMPACT_SINCE:
        cursor.skip_tags()
    if version >= _THROTTLE_TIME_SINCE:
        cursor.take(4)
    out = [answer[: cursor.at]]
    out += _brokers(cursor, node) if version >= _COMPACT_SINCE else _plain_brokers(cursor, node)
    start = cursor.at
    if version >= _COMPACT_SINCE:
        cursor.string()  # the cluster id
    elif version >= _CLUSTER_ID_SINCE:
        cursor.skip_plain_string()
    out += [answer[start : cursor.at], INT32.pack(node.node_id)]
    cursor.take(4)
    out.append(answer[cursor.at :])
    return b"".join(out)


def _plain_brokers(cursor: Cursor, node: Node) -> Iterator[bytes]:
    (count,) = cursor.unpack(INT32)
    start = cursor.at
    for _ in range(count):
        cursor.take(4)
        cursor.skip_plain_string()
        cursor.take(4)
        cursor.skip_plain_string()
    yield INT32.pack(count + 1)
    yield cursor.body[start : cursor.at]
    host = node.host.encode()
    yield INT32.pack(node.node_id) + INT16.pack(len(host)) + host + INT32.pack(node.port) + _NO_PLAIN_STRING


def _brokers(cursor: Cursor, node: Node | None) -> Iterator[bytes]:
    count = cursor.count()
    start = cursor.at
    for _ in range(count):
        cursor.take(4)
        cursor.string()
        cursor.take(4)
        cursor.string()
        cursor.skip_tags()
    yield varint(count + 1 + (node is not None))
    yield cursor.body[start : cursor.at]
    if node is not None:
        yield INT32.pack(node.node_id) + _string(node.host) + INT32.pack(node.port) + b"\0\0"


def _topics(cursor: Cursor, views: Callable[[str], TopicView], added: Additions, with_ids: bool) -> Iterator[bytes]:
    """Yield each topic's bytes; nothing for a topic that is left out."""
    for _ in range(cursor.count()):
        start = cursor.at
        (error_code,) = cursor.unpack(INT16)
        name = cursor.string()
        head = cursor.body[start : cursor.at]
        live_id = cursor.take(_ID_BYTES) if with_ids else None
        head += cursor.take(1)
        if name is None:
            raise MalformedFrame("a Metadata answer with a topic without a name")
        view = of_live(views(name), live_id)
        if error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and view.is_alias:
            error_code, head = 0, _NO_ERROR + head[INT16.size :]
        elif error_code:
            view = TopicView.unlisted(name)
        partitions = _listed(cursor)
        operations = cursor.take(4)
        cursor.skip_tags()
        if added.known_only and error_code in _UNKNOWN:
            yield b""
            continue
        partitions = _moded(partitions, view) if view.modes else [p + _READ_WRITE for p in partitions]
        yield b"".join([head, varint(len(partitions) + 1), *partitions, operations, _topic_tags(view, added.groups)])


def _listed(cursor: Cursor) -> list[bytes]:
    """Return the partitions of one topic without their tagged fields, else unchanged. This is the innermost loop."""
    body, partitions = cursor.body, []
    count = cursor.count()
    at = cursor.at
    try:
        for _ in range(count):
            start = at
            at += 14
            for _array in range(3):
                length = body[at]
                if length > 127 or length == 0:
                    cursor.at = at
                    length = cursor.count(4) + 1
                    at = cursor.at - 1
                at += 4 * length - 3
            partitions.append(body[start:at])
            if body[at]:
                cursor.at = at
                cursor.skip_tags()
                at = cursor.at
            else:
                at += 1
    except IndexError as error:
        raise MalformedFrame("a Metadata response that ends early") from error
    cursor.at = at
    return partitions


def _moded(partitions: list[bytes], view: TopicView) -> list[bytes]:
    """Return each partition with its mode, even if only the mode log has it: a retired partition never disappears."""
    indices = [INT32.unpack_from(partition, 2)[0] for partition in partitions]
    every = range(len(view.modes))
    missing = [] if indices == list(every) else sorted(set(every).difference(indices))
    absent = [_LISTED.pack(ErrorCode.LEADER_NOT_AVAILABLE, index, _NONE, _NONE) + _EMPTY_ARRAYS for index in missing]
    return [
        partition + _mode_and_tags(view, index)
        for partition, index in zip(partitions + absent, indices + missing, strict=True)
    ]


def _mode_and_tags(view: TopicView, index: int) -> bytes:
    mode = _MODES[view.mode(index)]
    read_up_to = None if view.replaced_by is None else view.replaced_by.read_up_to.get(index)
    known = index in view.resume_offsets or index in view.reclaimed
    if not known and read_up_to is None:
        return mode + b"\0"
    tags = []
    if (offset := view.resume_offsets.get(index)) is not None:
        tags.append(_tag(0, struct.pack(">q", offset)))
    if index in view.reclaimed:
        tags.append(_tag(1, b"\1"))
    if read_up_to is not None:
        tags.append(_tag(2, struct.pack(">q", read_up_to)))
    return mode + bytes([len(tags)]) + b"".join(tags)


def _topic_tags(view: TopicView, asking: frozenset[str]) -> bytes:
    epochs = _EPOCHS.pack(1, 8, view.version[0], 2, 8, view.version[1]) if view.modes else b""
    topic_id = b"" if view.topic_id is None else _tag(0, _string(view.topic_id))
    previous = b"" if view.previous_count is None else _tag(3, struct.pack(">i", view.previous_count))
    replaced_by, moved = b"", list[bytes]()
    if view.replaced_by is not None:
        replaced_by = _tag(4, b"\2" + _replaced_by(view.replaced_by))
        moved = _moved_tags(view.replaced_by.moved, asking)
    count = 2 * bool(epochs) + bool(topic_id) + bool(previous) + bool(replaced_by) + len(moved)
    return b"".join([bytes([count]), topic_id, epochs, previous, replaced_by, *moved])


def _replaced_by(new_topic: ReplacedBy) -> bytes:
    groups, complete = sorted(new_topic.groups), bytes([new_topic.groups_complete])
    named = [_string(new_topic.topic), _string(new_topic.topic_id)]
    state = struct.pack(">ib", new_topic.partition_count, new_topic.state)
    return b"".join([*named, state, _strings(groups), complete, b"\0"])


def _moved_tags(moved: Moved, asking: frozenset[str]) -> list[bytes]:
    """Return the tags with those of the client's groups (``asking``) whose gate is open; no other group is named."""
    if moved.version == NO_EPOCH:
        return []
    epochs = (_tag(number, struct.pack(">q", epoch)) for number, epoch in enumerate(moved.version, 6))
    return [_tag(5, _strings(sorted(filter(moved.has_open_gate, asking)))), *epochs]


def _answer_tags(added: Additions) -> list[bytes]:
    tags = []
    if added.controller_name is not None:
        tags.append(_tag(0, _string(added.controller_name)))
    if added.removed:
        tags.append(_tag(1, _strings(added.removed)))
    return [bytes([len(tags)]), *tags]


def _strings(texts: Sequence[str]) -> bytes:
    return varint(len(texts) + 1) + b"".join(map(_string, texts))


def _string(text: str) -> bytes:
    encoded = text.encode(errors="replace")  # a record's JSON may have strings that UTF-8 cannot encode
    return varint(len(encoded) + 1) + encoded


def _tag(number: int, value: bytes) -> bytes:
    return bytes([number]) + varint(len(value)) + value
