"""The topics to which a kafka-python consumer subscribes, and those whose metadata it requests.

Only the polling thread may use this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from modeaware.callouts import get_logger
from modeaware.clients.actions import Subscribe
from modeaware.kafka_python._gateway import deleted
from modeaware.kafka_python.offsets import Parts
from modeaware.views.source import Views

log = get_logger(__name__)

_FLAGS = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "u": re.UNICODE, "x": re.VERBOSE}


class ChangedPattern:
    """The application's pattern with changed matches; kafka-python calls :meth:`match` with each topic.

    Args:
        pattern: the application's pattern.
        more: topics that the pattern does not match, but that this object matches.
        left_out: topics that the pattern matches, but that this object does not match.
    """

    def __init__(self, pattern: str, more: Iterable[str] = (), left_out: Iterable[str] = ()) -> None:
        self.pattern = pattern
        self.changes = (frozenset(more), frozenset(left_out))
        self._match = re.compile(pattern).match

    def match(self, topic: str) -> bool:
        more, left_out = self.changes
        return topic in more or (topic not in left_out and self._match(topic) is not None)


def as_text(pattern: str | re.Pattern[str]) -> str:
    """Return the pattern as text, with the flags of a compiled pattern in front, as in ``(?iu)orders``."""
    if isinstance(pattern, str):
        return pattern
    flags = "".join(letter for letter, flag in _FLAGS.items() if pattern.flags & flag)
    return f"(?{flags}){pattern.pattern}"


def as_name(pattern: str) -> str:
    """Return the pattern as a member keeps it among the names of its subscription."""
    return f"^{pattern}"


def matches(name: str, topic: str) -> bool:
    """Return whether a pattern matches ``topic``, as in kafka-python: from the start of the topic's name.

    Args:
        name: the pattern, as :func:`as_name` returns it.
    """
    return re.match(name.removeprefix("^"), topic) is not None


class Topics:
    """The topics of one consumer.

    Attributes:
        group_id: the group, for the log.
        names: the application's subscription: names, or its pattern (:func:`as_name`).
        left: topics from which the consumer has unsubscribed since the last join.

    Args:
        creates: ``allow_auto_create_topics``.
    """

    def __init__(self, parts: Parts, views: Views, group_id: str, *, creates: bool) -> None:
        self._subscription = parts.subscription
        self._cluster = parts.cluster
        self._views = views
        self.group_id = group_id
        self._creates = creates
        self._widened = False
        self._checked_ms = 0.0  # the time of the kafka-python metadata that was checked last
        self.names: tuple[str, ...] = ()
        self.left: set[str] = set()

    def subscribe(self, subscribe: Subscribe) -> None:
        """Subscribe to the member's topics in place of the application's names."""
        subscription, more = self._subscription, set(subscribe.topics).difference(self.names)
        self._widened |= bool(more)
        self.create(True)
        if subscription.subscribed_pattern is not None:
            before = subscription.subscribed_pattern
            pattern = ChangedPattern(before.pattern, more, subscribe.left_out)
            if pattern.changes != getattr(before, "changes", ChangedPattern("").changes):
                subscription.subscribed_pattern = pattern
                self._cluster.request_update()
        elif set(subscribe.topics) != subscription.subscription:
            log.info("%s: a topic of %s was replaced; subscribing to %s from now on",
                     self.group_id, [*self.names], [*subscribe.topics])  # fmt: skip
            self.left |= subscription.subscription.difference(subscribe.topics)
            subscription.change_subscription(subscribe.topics)
            if not self.group_id:  # in a group, each join removes the topics that no member subscribes to
                subscription.reset_group_subscription()
            self._cluster.set_topics(subscription.group_subscription())

    def forget_deleted(self) -> None:
        """Stop requesting the metadata of topics that were replaced and deleted."""
        cluster, subscription = self._cluster, self._subscription
        if self._checked_ms == cluster._last_successful_refresh_ms:
            return
        self._checked_ms = cluster._last_successful_refresh_ms
        if not self.names or subscription.subscribed_pattern is not None:
            return  # the application has assigned partitions itself, or the metadata of all topics is requested
        wanted = subscription.group_subscription() or ()
        gone = deleted(set(cluster._topics).difference(wanted), self._views)
        cluster._topics = cluster._topics - gone  # a new set: kafka-python's thread may be iterating
        cluster.set_topics(subscription.group_subscription() or ())  # a topic may exist again

    def forget_all(self) -> None:
        """Stop requesting metadata of any topic: the application has unsubscribed. Otherwise kafka-python would
        continue to request the topics of the earlier subscription, and would create a deleted topic again."""
        self._cluster._topics = set()  # a new set: kafka-python's thread may be iterating

    def create(self, allowed: bool) -> None:
        """Let metadata requests create topics if ``allowed``, and if the application has set
        ``allow_auto_create_topics`` (kafka-python 3.0.12 ignores this setting).

        Once the consumer has subscribed to a new topic, the requests create no topics: kafka-python continues to
        request the topics of earlier subscriptions. So it would create the new topic of an undone replacement again.
        """
        allowed = allowed and self._creates and not self._widened
        if self._cluster.config["allow_auto_create_topics"] != allowed:
            self._cluster.config["allow_auto_create_topics"] = allowed
            self._cluster.request_update()
