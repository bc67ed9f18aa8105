"""What a member requests of its group: its subscription, and a rebalance if a new topic has no owner.

* A new topic is left out of the subscription until brokers have it. Otherwise the application would get an error about
  a topic that it has not named. A topic that the application has named is not looked up. The exception is an alias:
  another topic may be created under that name.
* A static member that restarts gets its earlier assignment without a rebalance, even if it subscribes to more topics
  than before (KAFKA-12759). So a static member requests a rebalance if a new topic has no owner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from modeaware.clients.actions import Action, Asked, Rejoin, Request, Subscribe
from modeaware.clients.starts import Key
from modeaware.clients.subscription import Reading

ASK_S = 1.0
"""How often brokers are queried for a new topic."""
UNOWNED_S = 5.0
"""How long a new topic may lack an owner before a static member requests a rebalance. Each query doubles the time."""


class Joining:
    """The subscription of one member.

    Args:
        static: a member of the classic protocol with a ``group.instance.id``.

    Attributes:
        subscribed: the last subscription; None: the member has to subscribe anew.
    """

    def __init__(self, *, static: bool) -> None:
        self._static = static
        self._there: set[tuple[str, str | None]] = set()  # new topics that brokers have, with their ids
        self._ask_s = 0.0
        self._unowned_s: float | None = None
        self._wait_s = UNOWNED_S
        self._rejoins = False
        self.subscribed: Subscribe | None = None

    def to_do(
        self, reading: Reading, topics: Collection[str] | None, now_s: float
    ) -> tuple[Action | None, float | None]:
        """Return the next action and None; or None and the time of the next action (None: none is planned).

        Args:
            topics: the topics of this member's assignment; None: it has no assignment.
        """
        unknown = self._unknown(reading)
        if unknown and self._ask_s <= now_s:
            return Request(Asked.TOPICS, frozenset((topic, 0) for topic in unknown)), None
        wanted = Subscribe(tuple(topic for topic in reading.topics if topic not in unknown), reading.left_out)
        if self.subscribed is None or _as_sets(self.subscribed) != _as_sets(wanted):
            return wanted, None
        if self._rejoins:
            return Rejoin(), None
        missing = set() if topics is None or not self._static else reading.new_topics.difference(topics, unknown)
        if not missing:
            self._unowned_s = None
        elif self._unowned_s is None:
            self._unowned_s = now_s + self._wait_s
        elif self._unowned_s <= now_s:
            return Request(Asked.OWNED, frozenset((topic, 0) for topic in missing)), None
        times = [at for at in (self._ask_s if unknown else None, self._unowned_s) if at is not None]
        return None, min(times, default=None)

    def _unknown(self, reading: Reading) -> set[str]:
        unseen = {topic for topic in reading.new_topics if (topic, reading.topic_id(topic)) not in self._there}
        return {topic for topic in unseen if topic not in reading.reader.names or reading.is_alias(topic)}

    def rejoined(self) -> None:
        self._rejoins = False

    def there(self, reading: Reading, keys: Collection[Key], again_s: float) -> None:
        """Note that brokers have the topics of ``keys``; the others are looked up again at ``again_s``."""
        self._there |= {(topic, reading.topic_id(topic)) for topic, _ in keys}
        self._ask_s = again_s

    def owned(self, keys: Collection[Key], answer: Mapping[Key, Any], now_s: float) -> None:
        """Note whether the topics of ``keys`` have an owner; ``answer`` lacks those that are unknown."""
        self._wait_s *= 2  # perhaps the group cannot give the topic an owner
        self._unowned_s = now_s + self._wait_s
        self._rejoins = any(key in answer and not answer[key] for key in keys)


def _as_sets(subscribe: Subscribe) -> tuple[set[str], frozenset[str]]:
    return set(subscribe.topics), subscribe.left_out
