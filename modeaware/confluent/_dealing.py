"""What the group's dealing leaves to this member: the views known at the join, the re-deal under ``range``, and its
doubts.

The rules are in :mod:`modeaware.assignment`; this module brings them the views and the coordinator's description.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from modeaware.assignment import hidden, possible_hidden, rejoin_turns, share
from modeaware.confluent._group_conf import GroupConf
from modeaware.confluent._offsets import Key
from modeaware.confluent._redeal import (
    RANGE,
    DealingUnknown,
    GroupDealing,
    GroupDescriber,
    GroupMoved,
    generation_of,
)
from modeaware.errors import ModeSourceError
from modeaware.topic_view import TopicView
from modeaware.views.source import Views

log = logging.getLogger(__name__)

REFRESH_TIMEOUT_S = 3.0
RETRY_S = 0.5
TURN_S = 1.0
GIVE_UP_S = 30.0
SEEN_VIEWS = 1_000
"""How many changes of a topic are remembered since a join; with more of them its re-deal is in doubt."""
_NOTHING_HIDDEN: frozenset[frozenset[int]] = frozenset({frozenset()})


class Dealing:
    """One member's part in the group's generations. All but :meth:`note` belongs to the polling thread.

    Attributes:
        undealt: topics of the present assignment whose re-deal is in doubt.
        withheld: partitions that this member was given and does not hold: of topics in doubt, or dealt to another.
        rejoins: how often this member asked for a rebalance.
    """

    def __init__(
        self, stock: Any, conf: GroupConf, views: Views, describer: GroupDescriber, now_s: Callable[[], float]
    ) -> None:
        self._stock = stock
        self._conf = conf
        self._views = views
        self._describer = describer
        self._now_s = now_s
        self._redeals = conf.may_be_range and not conf.incremental
        self._lock = threading.Lock()
        self._joined: Mapping[str, TopicView] | None = None
        self._seen: dict[str, deque[TopicView]] = {}
        self._possible: dict[str, frozenset[frozenset[int]] | None] = {}
        self._dealt: GroupDealing | None = None
        self._pin: tuple[str, int | None, frozenset[Key]] | None = None
        self._pinned: set[Key] = set()
        self._due_s: float | None = None
        self._give_up_s = 0.0
        self._turn_s: float | None = None
        self._rejoined_for: frozenset[tuple[str, tuple[int, int]]] = frozenset()
        self._short = False
        self.undealt: set[str] = set()
        self.withheld: set[Key] = set()
        self.rejoins = 0

    def note(self, view: TopicView) -> None:
        """Remember a view that came into force (any thread)."""
        if self._redeals:
            with self._lock:
                self._seen.setdefault(view.topic, deque(maxlen=SEEN_VIEWS)).append(view)

    def before_join(self) -> None:
        """Note which views are known now; the next generation begins after this."""
        if self._redeals:
            with self._lock:
                self._seen.clear()  # first: what arrives before the snapshot is in both
            self._joined = self._views.views() if self._views.ready else None
        self._due_s = self._turn_s = None
        # What is withheld stays so until the next assignment, which may be the same one again.

    def deal(self, given: set[Key]) -> set[Key]:
        """What this member has assigned to it of a new assignment: what it owns, and what is :attr:`withheld`.

        Blocks for a read of the mode log and, where partitions are hidden under ``range``, for a description of the
        group (seconds at most).
        """
        if not self._redeals:
            return set(given)
        pin = (self._stock.memberid(), generation_of(self._stock.consumer_group_metadata()), frozenset(given))
        if self._pin == pin and pin[1] is not None:
            # The same generation again (a follower that joins anew gets its assignment back): nobody else let go.
            return self._pinned | self.withheld
        self._refresh()
        self._dealt, self._short = None, False
        self._possible = {topic: self._possible_of(topic) for topic in _topics(given)}
        self.undealt = {t for t, possible in self._possible.items() if possible != _NOTHING_HIDDEN}
        self.withheld = {key for key in given if key[0] in self.undealt}
        self._give_up_s = self._now_s() + GIVE_UP_S
        self._pin, self._pinned = pin, given - self.withheld
        if self.undealt:
            topics, own = set(self.undealt), self._settle(given)
            if own is not None:
                self.withheld = {key for key in self.withheld if key[0] not in topics}
                self._pinned |= own
        return self._pinned | self.withheld

    def _refresh(self) -> None:
        try:
            self._views.refresh(REFRESH_TIMEOUT_S)
        except ModeSourceError as error:
            log.warning("%s: assignment made by the last known modes: %s", self._conf.group_id, error)

    def _possible_of(self, topic: str) -> frozenset[frozenset[int]] | None:
        now = self._views.view(topic)
        if self._joined is None:
            # Joined without any view (modeaware.on.unknown=writable): all is well unless partitions are hidden.
            return None if hidden(now) else _NOTHING_HIDDEN
        with self._lock:
            seen = list(self._seen.get(topic, ()))
        return possible_hidden(self._joined.get(topic) or TopicView.unlisted(topic), seen, now)

    def settle(self, given: set[Key]) -> None:
        """Deal the topics that are still in doubt, if the group can be described now.

        Of what was withheld this member then takes what it owns. If it owns what it was not given, only another
        rebalance can bring that.
        """
        topics = set(self.undealt)
        own = self._settle(given) if topics else None
        if own is not None:
            self._short = not own <= self.withheld
            self._pinned |= own & self.withheld
            self.withheld = {key for key in self.withheld if key[0] not in topics or key not in own}

    def _settle(self, given: set[Key]) -> set[Key] | None:
        self._due_s = None
        try:
            dealt = self._describe(given)
        except GroupMoved as moved:
            log.info("%s: nothing held of %s yet: %s", self._conf.group_id, sorted(self.undealt), moved)
            self._due_s = self._now_s() + RETRY_S
            return None
        except DealingUnknown as unknown:
            if not unknown.final and self._now_s() < self._give_up_s:
                log.info("%s: nothing held of %s yet: %s", self._conf.group_id, sorted(self.undealt), unknown)
                self._due_s = self._now_s() + RETRY_S
                return None
            log.warning("%s: %s keeps the dealing of all partitions, so members may be unevenly loaded: %s",
                        self._conf.group_id, sorted(self.undealt), unknown)  # fmt: skip
            dealt = GroupDealing("unknown", {})
        own = {key for topic in self.undealt for key in self._share(topic, dealt, given)}
        self.undealt = set()
        return own

    def _share(self, topic: str, dealt: GroupDealing, given: set[Key]) -> set[Key]:
        if dealt.strategy != RANGE:
            return {key for key in given if key[0] == topic}
        own = share(dealt.of(topic), self._stock.memberid(), self._possible.get(topic))
        return {(topic, partition) for partition in own}

    def _describe(self, given: set[Key]) -> GroupDealing:
        if self._dealt is None:
            self._dealt = self._describer.dealing(self._stock.memberid(), given)
        return self._dealt

    def wants_rejoin(self, given: set[Key]) -> bool:
        """Whether a new rebalance would leave this member other partitions, and it has not asked for one by these
        views.

        Sets the time of its turn. False as well when that cannot be told (the group moved on, or is not described).
        """
        if not self.undealt:
            self._due_s = None
        if self._short:
            self._turn_s = self._turn_s or self._now_s()
            return True
        topics = [t for t in sorted(_topics(given)) if t not in self.undealt and self.changed(t)]
        versions = frozenset((t, self._views.view(t).version) for t in topics)
        if not self._redeals or not topics or versions == self._rejoined_for:
            self._turn_s = None
            return False
        turns: list[str] = []
        try:
            dealt = self._describe(given)
        except (GroupMoved, DealingUnknown) as error:
            log.info("%s: not known whether a rebalance is needed: %s", self._conf.group_id, error)
            self._turn_s = None
            if self._now_s() < self._give_up_s:
                self._due_s = self._now_s() + RETRY_S
            return False
        if dealt.strategy == RANGE:
            for topic in topics:
                now = hidden(self._views.view(topic))
                turns += rejoin_turns(dealt.of(topic), self._possible.get(topic), now)
        me = self._stock.memberid()
        if me not in turns:
            self._turn_s = None
            return False
        if self._turn_s is None:
            self._turn_s = self._now_s() + TURN_S * list(dict.fromkeys(turns)).index(me)
        return True

    def changed(self, topic: str) -> bool:
        """Whether the readable partitions may not be those that the present generation was dealt by."""
        return self._possible.get(topic, _NOTHING_HIDDEN) != frozenset({hidden(self._views.view(topic))})

    def my_turn(self, given: set[Key]) -> bool:
        """Whether to ask for the rebalance now: the turn has come, and nobody else has asked meanwhile."""
        if self._turn_s is None or self._now_s() < self._turn_s:
            return False
        try:
            self._describer.dealing(self._stock.memberid(), given)
        except (GroupMoved, DealingUnknown) as error:
            log.debug("%s: no rebalance asked for: %s", self._conf.group_id, error)
            self._turn_s = self._now_s() + RETRY_S
            return False
        topics = [t for t in sorted(_topics(given)) if t not in self.undealt and self.changed(t)]
        self._rejoined_for = frozenset((t, self._views.view(t).version) for t in topics)
        self._turn_s, self._short = None, False
        self.rejoins += 1
        return True

    @property
    def unsettled(self) -> bool:
        """Whether there may be more to do for the present assignment than to hold what was dealt."""
        return any(possible != _NOTHING_HIDDEN for possible in self._possible.values())

    def modes_changed(self) -> None:
        """A view changed: give the next questions to the coordinator their full time again."""
        self._give_up_s = self._now_s() + GIVE_UP_S

    def due_s(self) -> float | None:
        """When to act again, on the clock given; None if there is nothing to wait for."""
        times = [at for at in (self._due_s, self._turn_s) if at is not None]
        return min(times, default=None)


def _topics(given: set[Key]) -> set[str]:
    return {topic for topic, _ in given}
