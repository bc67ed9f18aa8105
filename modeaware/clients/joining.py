"""What a member requests of its group: its subscription, and a rebalance if a new topic has no owner.

* A new topic is left out of the subscription until brokers return it. Otherwise the application would get an error
  about a topic that it has not named. A new topic that the application names is subscribed at once, except while the
  name is still an alias: the new topic may not exist yet, so brokers have to return it first.
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
"""How long a static member may lack a new topic before it checks for an owner. Each check doubles this time."""


class Joining:
    """The subscription of one member.

    Args:
        static: a member of the classic protocol with a ``group.instance.id``.

    Attributes:
        subscribed: the last subscription. If it is None, the member has to subscribe anew.
    """

    def __init__(self, *, static: bool) -> None:
        self._static = static
        self._there: set[tuple[str, str | None]] = set()  # new topics that brokers have returned, with their ids
        self._ask_s = 0.0
        self._unowned_s: float | None = None
        self._wait_s = UNOWNED_S
        self._rejoins = False
        self.subscribed: Subscribe | None = None

    def to_do(
        self, reading: Reading, topics: Collection[str] | None, now_s: float
    ) -> tuple[Action | None, float | None]:
        """Return the action that is due, or the time of the next action. If no action is planned, return two Nones.

        Args:
            topics: the topics of this member's assignment, or None if it has no assignment.
        """
        unknown = self._unknown(reading)
        if unknown and self._ask_s <= now_s:
            return Request(Asked.TOPICS, frozenset((topic, 0) for topic in unknown)), None
        wanted = self.wanted(reading)
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

    def wanted(self, reading: Reading) -> Subscribe:
        """Return the subscription: the topics to read, without new topics that brokers may not have yet."""
        unknown = self._unknown(reading)
        return Subscribe(tuple(topic for topic in reading.topics if topic not in unknown), reading.left_out)

    def _unknown(self, reading: Reading) -> set[str]:
        unseen = {topic for topic in reading.new_topics if (topic, reading.topic_id(topic)) not in self._there}
        return {topic for topic in unseen if topic not in reading.reader.names or reading.is_alias(topic)}

    def rejoined(self) -> None:
        self._rejoins = False

    def there(self, reading: Reading, keys: Collection[Key], again_s: float) -> None:
        """Note that brokers have returned the topics of ``keys``. Look up the other new topics again at ``again_s``."""
        self._there |= {(topic, reading.topic_id(topic)) for topic, _ in keys}
        self._ask_s = again_s

    def owned(self, keys: Collection[Key], answer: Mapping[Key, Any], now_s: float) -> None:
        """Note whether the topics of ``keys`` have an owner. ``answer`` lacks a topic if its owner is unknown."""
        self._wait_s *= 2  # perhaps the group cannot give the topic an owner
        self._unowned_s = now_s + self._wait_s
        self._rejoins = any(key in answer and not answer[key] for key in keys)


def _as_sets(subscribe: Subscribe) -> tuple[set[str], frozenset[str]]:
    return set(subscribe.topics), subscribe.left_out
