"""The topics that a consumer of kafka-python's subscribes to, and those whose metadata it requests.

All of it is for the polling thread.
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


class ChangedPattern:
    """A pattern that matches other topics than its own; kafka-python calls :meth:`match` with each topic.

    Args:
        pattern: the application's.
        more: topics beside its own.
        left_out: those of its own that it does not match any more.
    """

    def __init__(self, pattern: str, more: Iterable[str] = (), left_out: Iterable[str] = ()) -> None:
        self.pattern = pattern
        self.changes = (frozenset(more), frozenset(left_out))
        self._match = re.compile(pattern).match

    def match(self, topic: str) -> bool:
        more, left_out = self.changes
        return topic in more or (topic not in left_out and self._match(topic) is not None)


def as_name(pattern: str) -> str:
    """Return the form in which a member knows a pattern among names of topics."""
    return f"^{pattern}"


def matches(name: str, topic: str) -> bool:
    """Return whether a pattern matches as kafka-python matches it: from the start of the topic's name.

    Args:
        name: the pattern, as :func:`as_name` returns it.
    """
    return re.match(name.removeprefix("^"), topic) is not None


class Topics:
    """The topics of one consumer.

    Attributes:
        group_id: the group, for the log.
        names: what the application subscribes to: names, or its pattern (:func:`as_name`).
        left: topics that were unsubscribed from since the last join.

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
        self._looked_ms = 0.0  # at which of kafka-python's metadata
        self.names: tuple[str, ...] = ()
        self.left: set[str] = set()

    def subscribe(self, subscribe: Subscribe) -> None:
        """Subscribe to what the member reads in the place of what the application has named."""
        subscription, more = self._subscription, set(subscribe.topics).difference(self.names)
        self._widened |= bool(more)
        self.create(not self._widened)
        if subscription.subscribed_pattern is not None:
            before = subscription.subscribed_pattern
            pattern = ChangedPattern(before.pattern, more, subscribe.left_out)
            if pattern.changes != getattr(before, "changes", ChangedPattern("").changes):
                subscription.subscribed_pattern = pattern
                self._cluster.request_update()
        elif set(subscribe.topics) != subscription.subscription:
            log.info("%s: %s, replaced: subscribing to %s from now on",
                     self.group_id, [*self.names], [*subscribe.topics])  # fmt: skip
            self.left |= subscription.subscription.difference(subscribe.topics)
            subscription.change_subscription(subscribe.topics)
            self._cluster.set_topics(subscription.group_subscription())

    def forget_deleted(self) -> None:
        """Request the metadata of topics that were replaced and deleted no more."""
        cluster, subscription = self._cluster, self._subscription
        if self._looked_ms == cluster._last_successful_refresh_ms:
            return
        self._looked_ms = cluster._last_successful_refresh_ms
        if not self.names or subscription.subscribed_pattern is not None:
            return  # assigned by the application; or the metadata of all topics is requested
        wanted = subscription.group_subscription() or ()
        gone = deleted(set(cluster._topics).difference(wanted), self._views)
        cluster._topics = cluster._topics - gone  # anew: kafka-python's thread may be iterating over it
        cluster.set_topics(subscription.group_subscription() or ())  # one of them may have come back meanwhile

    def create(self, allowed: bool) -> None:
        """Let brokers create topics that are looked up, where ``allow_auto_create_topics`` does (kafka-python's 3.0.12
        does not heed it). But not once one was replaced: kafka-python goes on to look up what it was subscribed to,
        which would bring up again a topic that was deleted, the new topic of an undone replacement, say."""
        allowed = allowed and self._creates
        if self._cluster.config["allow_auto_create_topics"] != allowed:
            self._cluster.config["allow_auto_create_topics"] = allowed
            self._cluster.request_update()
