"""Which topics there are, and which of them a name or a pattern means, as ``kafka-topics`` understands it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.topic_view import base64_id
from modeaware.wire.brokers.client import Brokers
from modeaware.wire.brokers.messages import MetadataRequest

_TOPIC_IDS = 10
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_QUOTES = "\"'"


@dataclass(frozen=True)
class ListedTopic:
    """A topic: its name, its id (Kafka's base64 form), and whether it is Kafka's own (``__consumer_offsets``)."""

    name: str
    topic_id: str
    internal: bool
    partition_count: int


@dataclass(frozen=True)
class TopicList:
    """What one broker knows.

    Attributes:
        topics: all that the user may see, by name.
        live_brokers: the ids of the brokers that are alive.
    """

    topics: tuple[ListedTopic, ...]
    live_brokers: frozenset[int]


def list_topics(brokers: Brokers) -> TopicList:
    """Ask any broker for all topics.

    Raises:
        ClusterError: no broker answered.
    """
    answer = brokers.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False, min_version=_TOPIC_IDS))
    topics = [
        ListedTopic(topic.name, base64_id(topic.topic_id), bool(topic.is_internal), len(topic.partitions))
        for topic in answer.topics
        if topic.name
    ]
    return TopicList(
        tuple(sorted(topics, key=lambda topic: topic.name)), frozenset(int(b.node_id) for b in answer.brokers)
    )


def is_topic_name(text: str) -> bool:
    """Whether a topic can have this name. ``a.b`` is one, though as a pattern it would match ``a-b`` too."""
    return _TOPIC_NAME.fullmatch(text) is not None


def matching(
    topics: Iterable[ListedTopic], pattern: str | None, *, exclude_internal: bool = False
) -> list[ListedTopic]:
    """The topics whose whole name matches (None: all).

    As ``kafka-topics`` reads a pattern: commas separate alternatives, blanks and outer quotes do not count.

    Raises:
        RequestRefused: the pattern is no regular expression.
    """
    shown = [topic for topic in topics if not (exclude_internal and topic.internal)]
    if pattern is None:
        return shown
    try:
        wanted = re.compile(pattern.strip().replace(",", "|").replace(" ", "").strip(_QUOTES))
    except re.error as error:
        raise RequestRefused(f"{pattern!r} is an invalid regex: {error}", code=ErrorCode.INVALID_REQUEST) from error
    return [topic for topic in shown if wanted.fullmatch(topic.name)]


def named(topics: Sequence[ListedTopic], pattern: str) -> list[ListedTopic]:
    """The topics to show: the one of exactly this name, where there is one, and no other; else those that match it.

    Raises:
        RequestRefused: the pattern is no regular expression.
    """
    exact = [topic for topic in topics if topic.name == pattern]
    return exact or matching(topics, pattern)


def named_for_change(topics: Iterable[ListedTopic], pattern: str, mode_log_topic: str) -> list[ListedTopic]:
    """The topics to alter or delete. What can be a topic's name means that topic alone, whether it exists or not.

    ``kafka-topics`` takes ``a.b`` for ``aXb``, too, even to delete it. A pattern never means internal topics, nor the
    mode log.

    Raises:
        RequestRefused: the pattern is no regular expression.
    """
    if is_topic_name(pattern):
        return [topic for topic in topics if topic.name == pattern]
    found = matching(topics, pattern, exclude_internal=True)
    return [topic for topic in found if topic.name != mode_log_topic]
