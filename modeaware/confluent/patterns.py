"""Which topics the patterns of a confluent_kafka consumer match, and which new topics brokers have by now.

A pattern cannot exclude a topic. librdkafka matches a pattern with any part of the name, a broker (KIP-848) with the
whole name, and neither syntax has a negation. So once a topic is released, the consumer subscribes by name to the other
topics that the pattern matches, and lists topics as often as librdkafka would. The consumer stays subscribed by name
after the released topic is deleted. Otherwise librdkafka (2.16), which keeps looking up every topic that was once
assigned to the consumer, would report the missing topic every second. A consumer that starts after the deletion
subscribes to the pattern. The exception is a pattern without another match, which librdkafka would report as an error.

Only the polling thread may use this module, except :func:`matches`.
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
from modeaware.confluent.offsets import ANSWER_S, SINGLE_ANSWER_S, NonMember
from modeaware.librdkafka import OFFSET_END, KafkaError, KafkaException, TopicPartition
from modeaware.topic_view import TopicView

log = get_logger(__name__)

LONGEST_RETRY_S = 300.0


def matches(pattern: str, topic: str, *, whole_names: bool) -> bool | None:
    """Return whether a pattern matches ``topic``: the whole name in a broker's syntax (RE2), or a part of the name in
    librdkafka's (POSIX). Return None if Python's syntax differs from theirs, so that the answer is unknown."""
    search, foreign = (re.fullmatch, r"\[:") if whole_names else (re.search, r"\[:|\\[dD]")
    try:
        return None if re.search(foreign, pattern) else search(pattern, topic) is not None
    except (re.error, FutureWarning):  # Python warns of a set within a set, perhaps as an error
        return None


class Patterns:
    """The names to which one consumer subscribes in place of patterns that match released topics.

    Args:
        match: whether a pattern matches a topic.
        non_member: lists topics.
        refresh_s: how often topics are listed, or None to list them only once.
        keeps_patterns: patterns are not replaced by names, because brokers may create a named topic that is missing.

    Attributes:
        listed: the names to which the consumer subscribes in place of patterns.
        due_s: when to list topics again, on the monotonic clock.
    """

    def __init__(
        self,
        match: Match,
        non_member: NonMember,
        refresh_s: float | None,
        *,
        keeps_patterns: bool,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._match = match
        self._non_member = non_member
        self._refresh_s = refresh_s
        self._keeps_patterns = keeps_patterns
        self._now_s = now_s
        self._all: frozenset[str] = frozenset()
        self._retry_wait_s: float | None = None  # None if the last request was answered
        self._met: set[str] = set()  # replaced topics that brokers had in this consumer's lifetime
        self._as_is: set[str] = set()
        self.listed: frozenset[str] = frozenset()
        self.due_s: float | None = None

    def viewed(self, views: Mapping[str, TopicView]) -> None:
        self._met |= {topic for topic, view in views.items() if view.replaced_by and not view.replaced_by.gone}

    def topics(self, subscribe: Subscribe) -> tuple[str, ...]:
        """Return the names and patterns to pass to librdkafka's ``subscribe``."""
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
        """Return what to subscribe to in place of ``pattern``: the names of the topics that the pattern matches,
        without ``left_out``, or the pattern itself. Return None until topics are listed."""
        if not left_out or self._keeps_patterns:  # a subscription by name would create a deleted topic again
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
        """Return all topics, listed again if that is due. The result is empty while they are unknown."""
        if not self._all if self.due_s is None else self._now_s() >= self.due_s:
            self._take(self._non_member.topics())
        return self._all

    def _take(self, topics: frozenset[str]) -> None:
        """Keep ``topics``, the names of all topics. If empty (no answer), list again after twice the last wait."""
        if topics:
            self._all, self._retry_wait_s, wait_s = topics, None, self._refresh_s
        else:
            longest_s = LONGEST_RETRY_S if self._refresh_s is None else max(self._refresh_s, ASK_S)
            wait_s = ASK_S if self._retry_wait_s is None else min(2 * self._retry_wait_s, longest_s)
            self._retry_wait_s = wait_s
        self.due_s = None if wait_s is None else self._now_s() + wait_s

    def refresh_soon(self) -> None:
        """Note that a listed topic no longer exists."""
        self.due_s = self._now_s()


def present(stock: Any, asked: Any, topics: Collection[str], *, inside: bool) -> set[str]:
    """Return those of ``topics`` that both the brokers and the client's own metadata contain now. The topics may have
    been created just now; the requests create no topic.

    Args:
        stock: the client's own methods.
        asked: another client, which requests the topics first.
        inside: within a callback of librdkafka.
    """
    there = sorted(topics) if _has_topics(asked, topics, SINGLE_ANSWER_S) else _some_present(asked, topics)
    # The client itself subscribes by its own metadata. Send one request for all topics: each request of this client
    # waits until a pending fetch is answered.
    if not there or _has_topics(stock, there, ANSWER_S):
        return set(there)
    deadline_s = time.monotonic() + ANSWER_S
    for topic in () if inside else there:
        # librdkafka caches an authorization error of a topic for minutes, and subscribes by this cache. list_topics()
        # refreshes the cache, for the next call of this function.
        if time.monotonic() < deadline_s:
            with suppress(KafkaException):
                stock.list_topics(topic, timeout=ANSWER_S)
    return set()


def _some_present(asked: Any, topics: Collection[str]) -> list[str]:
    """Return those of ``topics`` that brokers have; some are missing. Requests end after a short time, so that no poll
    takes long. Their order is random: otherwise the same missing topics might always come first."""
    deadline_s = time.monotonic() + ANSWER_S
    in_turn = random.sample(sorted(topics), len(topics)) if len(topics) > 1 else []
    return [
        topic for topic in in_turn if time.monotonic() < deadline_s and _has_topics(asked, [topic], SINGLE_ANSWER_S)
    ]


def _has_topics(client: Any, topics: Collection[str], timeout_s: float) -> bool:
    # Not by list_topics(): if a callback calls it, confluent_kafka aborts when the same poll runs the next callback.
    asked = [TopicPartition(topic, 0, OFFSET_END) for topic in topics]
    try:
        errors = [p.error for p in client.offsets_for_times(asked, timeout=timeout_s)]
    except KafkaException as failure:
        errors = [failure.args[0]]
    missing = [error for error in errors if error and error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED]
    if missing:
        log.debug("%s: %s", sorted(topics), missing[0])
    return not missing
