"""A broker's Metadata answer made KIP-694's v10: v9's bytes, with a mode at the end of each partition.

The broker's answer is v9, or Kafka's own v10, which has a topic id in each topic and is v9 otherwise.

Only what must change is taken apart: a response about thousands of partitions is made in the one thread that serves
all clients.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from modeaware.errors import ErrorCode
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView, known_id
from modeaware.wire.frames import INT16, INT32, Cursor, MalformedFrame

_LISTED = struct.Struct(">hiii")  # error code, index, leader, leader epoch
_EMPTY_ARRAYS = b"\1\1\1"
_EPOCHS = struct.Struct(">BBqBBq")  # the tags ControllerEpoch and ModeEpoch
_MODES = {mode: struct.pack(">b", mode) for mode in PartitionMode}
_READ_WRITE = b"\0\0"  # the mode, and no tagged field
_NONE = -1
_ID_BYTES = 16
_NO_PLAIN_STRING = b"\xff\xff"
_COMPACT_SINCE = 9
_UNKNOWN = (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))


@dataclass(frozen=True)
class Node:
    node_id: int
    host: str
    port: int


@dataclass(frozen=True)
class Additions:
    """What a response gets beside the modes.

    Attributes:
        node: the active controller, also as ``controller_id``; None: -1.
        controller_name: the ControllerName tag.
        known_only: topics that do not exist, or that the user may not see, are left out.
        removed: the RemovedTopicIds tag.
    """

    node: Node | None
    controller_name: str | None
    known_only: bool
    removed: tuple[str, ...] = ()


def of_live(view: TopicView, live_id: bytes | None) -> TopicView:
    """Return ``view``; where its record is of another id than the live topic's, a view without modes (invariant I8)."""
    if view.topic_id is None:
        return view
    live = known_id(live_id)
    return view if view.applies_to(live) else TopicView(view.topic, live)


def with_modes(answer: bytes, views: Callable[[str], TopicView], added: Additions, *, with_ids: bool = False) -> bytes:
    """Return the v10 body (what follows the response header) for a broker's response (a whole frame).

    A topic with an error is returned as it came, without a mode: the user may not be authorized to know. One whose
    record is of another topic id is returned without modes and epochs, and with its own id.
    """
    cursor = Cursor(answer)
    cursor.take(4)
    cursor.skip_tags()
    out = [cursor.take(4), *_brokers(cursor, added.node)]
    start = cursor.at
    cursor.string()  # the cluster id
    out += [answer[start : cursor.at], INT32.pack(added.node.node_id if added.node else _NONE)]
    cursor.take(4)
    topics = [topic for topic in _topics(cursor, views, added.known_only, with_ids) if topic]
    out += [_varint(len(topics) + 1), *topics, cursor.take(4)]
    cursor.skip_tags()
    cursor.end()
    out += _answer_tags(added)
    return b"".join(out)


def without_ids(answer: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Return a broker's response to Kafka's Metadata 10 (a whole frame) as version 9, and the topics' ids."""
    cursor = Cursor(answer)
    cursor.take(4)
    cursor.skip_tags()
    cursor.take(4)
    for _ in _brokers(cursor, None):
        pass
    cursor.string()
    cursor.take(4)
    out, kept, ids = [], 0, {}
    for _ in range(cursor.count()):
        cursor.take(2)
        name = cursor.string()
        out.append(answer[kept : cursor.at])
        live_id = cursor.take(_ID_BYTES)
        kept = cursor.at
        cursor.take(1)
        _listed(cursor)
        cursor.take(4)
        cursor.skip_tags()
        if name is not None:
            ids[name] = live_id
    return b"".join([*out, answer[kept:]]), ids


def with_controller(answer: bytes, version: int, node: Node) -> bytes:
    """Return a broker's response to Metadata 1 to 9 (a whole frame) with ``node`` as a broker and as the controller."""
    cursor = Cursor(answer)
    cursor.take(4)
    if version >= _COMPACT_SINCE:
        cursor.skip_tags()
    if version >= 3:
        cursor.take(4)  # the throttle time
    out = [answer[: cursor.at]]
    out += _brokers(cursor, node) if version >= _COMPACT_SINCE else _plain_brokers(cursor, node)
    start = cursor.at
    if version >= _COMPACT_SINCE:
        cursor.string()  # the cluster id
    elif version >= 2:
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
    yield _varint(count + 1 + (node is not None))
    yield cursor.body[start : cursor.at]
    if node is not None:
        yield INT32.pack(node.node_id) + _string(node.host) + INT32.pack(node.port) + b"\0\0"


def _topics(cursor: Cursor, views: Callable[[str], TopicView], known_only: bool, with_ids: bool) -> Iterator[bytes]:
    """Each topic's bytes; none at all for one that is left out."""
    for _ in range(cursor.count()):
        start = cursor.at
        (error_code,) = cursor.unpack(INT16)
        name = cursor.string()
        head = cursor.body[start : cursor.at]
        live_id = cursor.take(_ID_BYTES) if with_ids else None
        head += cursor.take(1)
        if name is None:
            raise MalformedFrame("a Metadata answer with a topic without a name")
        view = TopicView.unlisted(name) if error_code else of_live(views(name), live_id)
        partitions = _listed(cursor)
        operations = cursor.take(4)
        cursor.skip_tags()
        if known_only and error_code in _UNKNOWN:
            yield b""
            continue
        partitions = _moded(partitions, view) if view.modes else [each + _READ_WRITE for each in partitions]
        yield b"".join([head, _varint(len(partitions) + 1), *partitions, operations, _topic_tags(view)])


def _listed(cursor: Cursor) -> list[bytes]:
    """The partitions of one topic as they came, without their tagged fields. The innermost loop: see the module."""
    body, found = cursor.body, []
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
            found.append(body[start:at])
            if body[at]:
                cursor.at = at
                cursor.skip_tags()
                at = cursor.at
            else:
                at += 1
    except IndexError as error:
        raise MalformedFrame("a Metadata response that ends early") from error
    cursor.at = at
    return found


def _moded(partitions: list[bytes], view: TopicView) -> list[bytes]:
    """Each partition with its mode, and those that only the mode log names: a retired one never disappears."""
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
    if index not in view.resume_offsets and index not in view.reclaimed and index not in view.handed_over:
        return mode + b"\0"
    tags = []
    if (offset := view.resume_offsets.get(index)) is not None:
        tags.append(_tag(0, struct.pack(">q", offset)))
    if index in view.reclaimed:
        tags.append(_tag(1, b"\1"))
    if index in view.handed_over:
        tags.append(_tag(2, b"\1"))
    return mode + bytes([len(tags)]) + b"".join(tags)


def _topic_tags(view: TopicView) -> bytes:
    epochs = _EPOCHS.pack(1, 8, view.version[0], 2, 8, view.version[1]) if view.modes else b""
    topic_id = b"" if view.topic_id is None else _tag(0, _string(view.topic_id))
    counts = () if view.previous_count is None else (*view.earlier_counts, view.previous_count)
    previous = b"" if not counts else _tag(3, _varint(len(counts) + 1) + struct.pack(f">{len(counts)}i", *counts))
    return bytes([2 * bool(epochs) + bool(topic_id) + bool(previous)]) + topic_id + epochs + previous


def _answer_tags(added: Additions) -> list[bytes]:
    tags = []
    if added.controller_name is not None:
        tags.append(_tag(0, _string(added.controller_name)))
    if added.removed:
        tags.append(_tag(1, _varint(len(added.removed) + 1) + b"".join(map(_string, added.removed))))
    return [bytes([len(tags)]), *tags]


def _string(text: str) -> bytes:
    encoded = text.encode(errors="replace")  # the mode log is JSON, which can say what UTF-8 cannot
    return _varint(len(encoded) + 1) + encoded


def _tag(number: int, value: bytes) -> bytes:
    return bytes([number]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
