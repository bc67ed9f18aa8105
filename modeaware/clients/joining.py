"""What a member joins its group for: its subscription, and a rebalance where a new topic has no owner.

* A new topic that brokers may not have yet is left out of the subscription until they do: an error about a topic that
  the application has not named would reach it. A topic that it has named is not looked up, unless the name is an alias,
  to which a topic comes back.
* A static member that starts again is given what it had, without a rebalance, also where it subscribes to more than
  before (KAFKA-12759). So a static member asks for a rebalance where a new topic has no owner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from modeaware.clients.actions import Action, Asked, Rejoin, Request, Subscribe
from modeaware.clients.starts import Key
from modeaware.clients.subscription import Reading

ASK_S = 1.0
"""How often it is requested whether brokers have a new topic."""
UNOWNED_S = 5.0
"""How long a new topic may have no owner before a static member asks for a rebalance; then twice as long."""


class Joining:
    """The subscription of one member.

    Args:
        static: a member of the classic protocol with a ``group.instance.id``.

    Attributes:
        subscribed: the last subscription; None: it is to be made anew.
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
        """Return what to do next, and when there is more where that is None.

        Args:
            topics: those of this member's assignment; None: it has none.
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
        """Brokers have the topics of ``keys``; the others are looked up again at ``again_s``."""
        self._there |= {(topic, reading.topic_id(topic)) for topic, _ in keys}
        self._ask_s = again_s

    def owned(self, keys: Collection[Key], answer: Mapping[Key, Any], now_s: float) -> None:
        """Whether the topics of ``keys`` have an owner is known, of those in ``answer``."""
        self._wait_s *= 2  # it may be that none can be given
        self._unowned_s = now_s + self._wait_s
        self._rejoins = any(key in answer and not answer[key] for key in keys)


def _as_sets(subscribe: Subscribe) -> tuple[set[str], frozenset[str]]:
    return set(subscribe.topics), subscribe.left_out
