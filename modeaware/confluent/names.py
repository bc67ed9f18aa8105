"""Records of a new topic under the name that the application subscribed to (``modeaware.topic.names=logical``).

A message keeps its topic as a Python object, and ``topic()`` returns the object that ``set_topic`` was given. So a
renamed message gets a ``str`` with an attribute: the name of the topic that contains the record. The message's offset
is committed on that topic, however long the application keeps the message and whatever is replaced meanwhile.

A ``TopicPartition`` keeps only the characters of the name. Then partition 0 of ``orders`` may be the old topic's or the
new topic's, and nothing distinguishes the two. So once a message was renamed to ``orders``, an offset for this name is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

from modeaware.clients.named import PairedName
from modeaware.clients.starts import Key
from modeaware.confluent.commits import behind
from modeaware.confluent.retarget import Switch, Target
from modeaware.librdkafka import KafkaError, KafkaException, Message

_PARAMETERS = ("message", "offsets", "asynchronous")


def physical_topic(message: Message) -> str | None:
    """Return the topic that contains the record of ``message``, whichever name the message has."""
    topic = message.topic()
    return topic.physical if isinstance(topic, PairedName) else topic


def first_offsets(messages: Iterable[Message]) -> dict[Key, int]:
    """Return the offset of the first record of each partition in ``messages``."""
    first: dict[Key, int] = {}
    for message in messages:
        topic, partition, offset = physical_topic(message), message.partition(), message.offset()
        if message.error() is None and topic is not None and partition is not None and offset is not None:
            first.setdefault((topic, partition), offset)
    return first


class LogicalNames:
    """The names of one consumer's subscription: renames the consumer's messages, and commits renamed messages. Only the
    polling thread may use it; any thread may call :meth:`logical`, ``commit.call`` and ``store_offsets.call``.

    Attributes:
        commit, store_offsets: call the methods of :meth:`put_over`, with translated names once messages are renamed.

    Args:
        commit, store_offsets: the methods to call until :meth:`put_over`. Their first argument is the client.
        renames: ``modeaware.topic.names=logical``.
    """

    def __init__(self, commit: Target, store_offsets: Target, renames: bool) -> None:
        self._renames = renames
        self._names: dict[str, PairedName] = {}
        self._followed: Mapping[str, str] | None = None
        self._given: set[str] = set()
        self.commit = Switch(commit)
        self.store_offsets = Switch(store_offsets)
        self._translating = (partial(self._translated, 0), partial(self._translated, 1))
        self._own: tuple[Target, Target] = commit, store_offsets
        self._translates = False

    def follow(self, logical: Mapping[str, str]) -> bool:
        """Add ``logical``, a mapping new topic -> name. Return whether to rename messages.

        Earlier names stay until :meth:`forget`, because a view may be out of force for a while.
        """
        if logical is not self._followed:
            self._followed = logical
            self._names = {
                **self._names,
                **{topic: PairedName.of(name, name, topic) for topic, name in logical.items()},
            }
        if not self._names or not self._renames:
            return False
        self._translates = True
        self._point(self._translating)
        return True

    def forget(self) -> None:
        """Note that the subscription changes: the names of the last one no longer count."""
        self._names = {}

    def put_over(self, commit: Target, store_offsets: Target) -> None:
        """Use these methods from now on."""
        self._own = commit, store_offsets
        if not self._translates:
            self._point(self._own)

    def _point(self, targets: tuple[Target, Target]) -> None:
        for switch, target in zip((self.commit, self.store_offsets), targets, strict=True):
            switch.point_to(target)

    def logical(self, message: Message) -> str | None:
        """Return the logical name of a message's topic, whether the message has that name or the topic's own."""
        topic = physical_topic(message)
        return str(self._names.get(topic or "", topic)) if topic is not None else None

    def rename(self, result: Message | list[Message] | None) -> None:
        """Rename the messages that ``poll`` or ``consume`` has returned."""
        names = self._names
        if result is None or not names or not self._renames:
            return
        for message in result if isinstance(result, list) else (result,):
            name = names.get(message.topic() or "")
            if name is not None:
                self._given.add(str(name))
                cast(Any, message).set_topic(name)  # its stub lacks the method

    def refuse(self, offsets: Iterable[Any]) -> None:
        """Refuse offsets whose topic is ambiguous.

        Raises:
            KafkaException: code ``_INVALID_ARG``.
        """
        for name in {getattr(partition, "topic", None) for partition in offsets} & self._given:
            raise KafkaException(
                KafkaError(
                    KafkaError._INVALID_ARG,
                    f"{name}: this consumer has returned records of the new topic under this name "
                    "(modeaware.topic.names=logical), so an offset under this name is ambiguous. Pass the message "
                    "instead (commit(message=...)), or the topic that consumer.physical_topic(message) returns",
                )
            )

    def _translated(self, which: int, consumer: Any, *args: Any, **kwargs: Any) -> Any:
        method = self._own[which]
        given = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
        message, offsets = given.get("message"), given.get("offsets")
        if isinstance(offsets, list):
            self.refuse(offsets)
        # librdkafka refuses a message with an error, and arguments that exclude each other.
        if isinstance(message, Message) and offsets is None and len(args) <= len(_PARAMETERS):
            topic = message.topic()
            if isinstance(topic, PairedName) and message.error() is None:
                others = {name: value for name, value in given.items() if name not in ("message", "offsets")}
                return method(consumer, offsets=[behind(message, topic)], **others)
        return method(consumer, *args, **kwargs)
