"""Which topics the patterns of a confluent_kafka consumer match, and which of its topics brokers have by now.

No topic can be left out of a pattern here: librdkafka matches it (a part of the name), or a broker under KIP-848 (the
whole name), and neither expression has a "but not". So once a topic is released, the topics that the pattern matches
are subscribed to by their names instead, and looked up as often as librdkafka would. Not only until the topic is gone:
librdkafka (2.16) looks up a topic whose partitions it had as long as the consumer lives, and would report every second
that the topic, which the pattern matches, does not exist. A consumer that begins when the topic is gone subscribes to
the pattern, unless that matches no topic, which librdkafka reports as an error.

All of it is for the polling thread, but :func:`matches`.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from modeaware.callouts import get_logger
from modeaware.clients.actions import Subscribe
from modeaware.clients.joining import ASK_S
from modeaware.clients.subscription import Match
from modeaware.confluent.offsets import ANSWER_S, SINGLE_ANSWER_S, Onlooker
from modeaware.librdkafka import OFFSET_END, KafkaError, KafkaException, TopicPartition
from modeaware.topic_view import TopicView

log = get_logger(__name__)

LONGEST_RETRY_S = 300.0


def matches(pattern: str, topic: str, *, whole_names: bool) -> bool | None:
    """Return whether a pattern matches: a broker's (RE2) a whole name, or librdkafka's (POSIX) a part of it; None: it
    is not Python's as well."""
    search, foreign = (re.fullmatch, r"\[:") if whole_names else (re.search, r"\[:|\\[dD]")
    try:
        return None if re.search(foreign, pattern) else search(pattern, topic) is not None
    except (re.error, FutureWarning):  # a set within a set; raised where warnings are errors
        return None


class Patterns:
    """What one consumer subscribes to in the place of patterns that match topics which are not read any more.

    Args:
        match: whether a pattern matches a topic.
        onlooker: what lists topics.
        refresh_s: how often topics are listed; None: never again.
        keeps_patterns: brokers may create a topic that is named and does not exist: patterns stay.

    Attributes:
        listed: what is subscribed to by name in the place of patterns.
        due_s: when topics are to be listed again, on the monotonic clock.
    """

    def __init__(
        self,
        match: Match,
        onlooker: Onlooker,
        refresh_s: float | None,
        *,
        keeps_patterns: bool,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._match = match
        self._onlooker = onlooker
        self._refresh_s = refresh_s
        self._keeps_patterns = keeps_patterns
        self._now_s = now_s
        self._all: frozenset[str] = frozenset()
        self._retry_wait_s: float | None = None  # None: the last request was answered
        self._met: set[str] = set()  # topics that were replaced, and not gone, in this consumer's time
        self._as_is: set[str] = set()
        self.listed: frozenset[str] = frozenset()
        self.due_s: float | None = None

    def viewed(self, views: Mapping[str, TopicView]) -> None:
        self._met |= {topic for topic, view in views.items() if view.successor and not view.successor.gone}

    def topics(self, subscribe: Subscribe) -> tuple[str, ...]:
        """Return the names and patterns for librdkafka to subscribe to."""
        self.listed = frozenset()
        subscribed: dict[str, None] = {}
        lists = False
        for name in subscribe.topics:
            left_out = {topic for topic in subscribe.left_out if name.startswith("^") and self._match(name, topic)}
            names = self._without(name, left_out)
            lists = lists or names != [name]
            subscribed |= dict.fromkeys([name] if names is None else names)
        if not lists:
            self._all, self.due_s, self._retry_wait_s = frozenset(), None, None
        return tuple(subscribed)

    def _without(self, pattern: str, left_out: Collection[str]) -> list[str] | None:
        """Return what to subscribe to so as to read what ``pattern`` matches, but for the topics ``left_out``; None:
        the pattern, until topics are listed."""
        if not left_out or self._keeps_patterns:  # a deleted topic that is named would be created again
            return [pattern]
        is_harmless = self._met.isdisjoint(left_out)
        if is_harmless and pattern in self._as_is:
            return [pattern]
        topics = self._list()
        matched = sorted(topic for topic in topics.difference(left_out) if self._match(pattern, topic))
        if is_harmless and matched:
            self._as_is.add(pattern)
            return [pattern]
        if not topics:
            return None
        self.listed |= frozenset(matched)
        return matched

    def _list(self) -> frozenset[str]:
        """Return all topics, as they were when it was last time to look; empty: not known yet."""
        if not self._all if self.due_s is None else self._now_s() >= self.due_s:
            self._take(self._onlooker.topics())
        return self._all

    def _take(self, topics: frozenset[str]) -> None:
        """Keep all topics; empty: the request was not answered, and is repeated after twice the wait of before."""
        if topics:
            self._all, self._retry_wait_s, wait_s = topics, None, self._refresh_s
        else:
            longest_s = LONGEST_RETRY_S if self._refresh_s is None else max(self._refresh_s, ASK_S)
            wait_s = ASK_S if self._retry_wait_s is None else min(2 * self._retry_wait_s, longest_s)
            self._retry_wait_s = wait_s
        self.due_s = None if wait_s is None else self._now_s() + wait_s

    def refresh_soon(self) -> None:
        """A topic that is listed does not exist any more."""
        self.due_s = self._now_s()


class NewTopicProbe:
    """Finds out whether brokers have topics, one of which has only just created them. Creates none."""

    def __init__(self, stock: Any, asked: Any) -> None:
        self._stock = stock
        self._asked = asked
        self._missed: set[str] = set()

    def present(self, topics: Collection[str], *, inside: bool) -> set[str]:
        """Return which of ``topics`` brokers, and the client itself, have by now.

        Args:
            inside: within a callback of librdkafka.
        """
        there: list[str] = []
        deadline_s = time.monotonic() + ANSWER_S
        for topic in () if inside else sorted(self._missed.intersection(topics)):
            # librdkafka keeps for minutes that its user may not see a topic, and would subscribe by that.
            if time.monotonic() < deadline_s:
                with suppress(KafkaException):
                    self._stock.list_topics(topic, timeout=ANSWER_S)
        for topic in random.sample(sorted(topics), len(topics)):  # the same ones must not always come first
            if time.monotonic() < deadline_s and _has_topics(self._asked, [topic], SINGLE_ANSWER_S):
                there.append(topic)
        # The client itself subscribes by what it has learned. It is asked once, since its fetch is answered first.
        if there and not _has_topics(self._stock, there, ANSWER_S):
            self._missed.update(there)
            return set()
        return set(there)


def _has_topics(client: Any, topics: Collection[str], timeout_s: float) -> bool:
    # Not by list_topics(): within a callback, it makes confluent_kafka abort at that poll's next callback.
    asked = [TopicPartition(topic, 0, OFFSET_END) for topic in topics]
    try:
        errors = [p.error for p in client.offsets_for_times(asked, timeout=timeout_s)]
    except KafkaException as failure:
        errors = [failure.args[0]]
    missing = [error for error in errors if error and error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED]
    if missing:
        log.debug("%s: %s", sorted(topics), missing[0])
    return not missing
