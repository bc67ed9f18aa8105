"""The rebalance callbacks around the application's own, and changes of modes applied by the polling thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from modeaware.confluent._dealing import Dealing
from modeaware.confluent._group_conf import GroupConf
from modeaware.confluent._holding import Holding
from modeaware.confluent._offsets import Key, StartOffsets, key_of
from modeaware.librdkafka import TopicPartition

log = logging.getLogger(__name__)

_RETRY_S = 0.05

Callback = Callable[[Any, list[TopicPartition]], Any]


@dataclass(frozen=True)
class Subscription:
    """What the application subscribed to, with its callbacks."""

    topics: tuple[str, ...]
    on_assign: Callback | None = None
    on_revoke: Callback | None = None
    on_lost: Callback | None = None

    def covers(self, topic: str) -> bool:
        """Whether changes of ``topic`` may concern this subscription (patterns are librdkafka's to match: any may)."""
        return topic in self.topics or any(name.startswith("^") for name in self.topics)


class Rebalance:
    """Stands between librdkafka's rebalances and the application. For the polling thread, which the callbacks run in.

    Attributes:
        subscription: the last one; stays after ``unsubscribe()``, whose revocation still calls back.
        given: what the group gave to this member in this generation; None while it has no assignment.

    Args:
        verify: has the views of some topics compared with the cluster's topic ids.
        look_again: has :meth:`apply` called by the polling thread soon.
        now_s: the monotonic clock.
    """

    def __init__(
        self,
        stock: Any,
        conf: GroupConf,
        holding: Holding,
        offsets: StartOffsets,
        dealing: Dealing,
        verify: Callable[[set[str]], object],
        look_again: Callable[[], None],
        now_s: Callable[[], float],
    ) -> None:
        self._stock = stock
        self._verify = verify
        self._look_again = look_again
        self._now_s = now_s
        self._conf = conf
        self._holding = holding
        self._offsets = offsets
        self._dealing = dealing
        self._in_callback = False
        self._assigned_inside = False
        self._midlife: set[Key] | None = None
        self._hidden: set[Key] = set()
        self._changing: set[Key] = set()
        self._late: set[Key] = set()
        self._closing = self._subscribed = False
        self._retry_s: float | None = None
        self.subscription: Subscription | None = None
        self.given: set[Key] | None = None

    def join(self) -> None:
        """Subscribe for real; the views must be noted before."""
        subscription = self.subscription
        if subscription is None:
            return
        self._dealing.before_join()
        self._holding.manual = False
        self._subscribed = True
        self._stock.subscribe(
            list(subscription.topics), on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost
        )

    def leave(self) -> None:
        """The application unsubscribed: no rebalance is asked for any more, and its callbacks see the last
        revocation."""
        self._subscribed = False

    # What librdkafka calls

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """``partitions`` is the whole assignment (eager), or what is added to it (incremental)."""
        new = {key_of(p) for p in partitions}
        self._verify({p.topic for p in partitions})  # before anything is decided by a view (invariant I8)
        self._holding.manual = False
        if self._conf.incremental:
            self.given = (self.given or set()) | new
        else:
            self.given, new = new, self._dealing.deal(new)
        shown = self._holding.readable(new) - self._dealing.withheld
        self._hidden = new - shown
        self._offer(consumer, shown, self._assign)
        self._offsets.commit_read_only(self._holding.starts)
        if self._dealing.unsettled:
            self._look_again()

    def _assign(self, partitions: list[TopicPartition]) -> None:
        if self._conf.incremental:
            self._holding.add(partitions, hidden=self._hidden)
        else:
            self._holding.assign(partitions, hidden=self._hidden)

    def on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        callback = self.subscription.on_revoke if self.subscription else None
        self._revoke(consumer, partitions, callback, lost=False)

    def on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        subscription = self.subscription
        callback = (subscription.on_lost or subscription.on_revoke) if subscription else None
        self._revoke(consumer, partitions, callback, lost=True)

    def _revoke(
        self, consumer: Any, partitions: list[TopicPartition], callback: Callback | None, *, lost: bool
    ) -> None:
        revoked = {key_of(p) for p in partitions}
        held = revoked & self._holding.held if self._conf.incremental else set(self._holding.held)
        starts = {key: start for key, start in self._holding.starts.items() if key in held}
        self._late, self._retry_s = set(), None
        self._changing, self._hidden = revoked, set()
        try:
            # A revocation of hidden partitions only is none to the application.
            if held or not revoked:
                self._call(callback, consumer, _parts(held))
            if not lost and not self._closing:
                self._offsets.commit_before_leaving(starts, self._dealing.changed)
        finally:
            self._dealing.before_join()
            # librdkafka's client unassigns what it revokes, unless the application did.
            if self._conf.incremental:
                self.given = (self.given or set()) - revoked
                self._holding.forget(revoked)
            else:
                self.given = None
                self._holding.clear()

    def before_close(self) -> None:
        """The last chance to ask the coordinator: within ``close()`` it is not asked any more."""
        self._closing = True
        if self.given is not None:
            self._offsets.commit_before_leaving(self._holding.starts, self._dealing.changed)

    # The application's callbacks

    def _offer(self, consumer: Any, keys: set[Key], take: Callable[[list[TopicPartition]], None]) -> None:
        """Call the application's ``on_assign``; assign if it did not do so itself."""
        callback = self.subscription.on_assign if self.subscription else None
        self._assigned_inside = False
        try:
            self._call(callback, consumer, _parts(keys))
        finally:
            if not self._assigned_inside:
                take(_parts(keys))

    def _call(self, callback: Callback | None, consumer: Any, partitions: list[TopicPartition]) -> None:
        if callback is None:
            return
        self._in_callback = True
        try:
            callback(consumer, partitions)
        finally:
            self._in_callback = False

    # What the application does itself, in its callbacks or outside

    def assign(self, partitions: list[TopicPartition]) -> None:
        """``Consumer.assign`` and, in mid-life, ``incremental_assign``: only what is offered may be chosen then."""
        if self._midlife is not None:
            self._assigned_inside = True
            self._holding.choose(self._midlife, partitions)
        elif self._in_callback:
            self._assigned_inside = True
            self._holding.assign(partitions, hidden=self._hidden - {key_of(p) for p in partitions})
        else:
            self._verify({p.topic for p in partitions})
            self._holding.manual = self.given is None
            self._holding.assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        if self._midlife is not None:
            self.assign(partitions)
        elif self._in_callback:
            self._assigned_inside = True
            self._holding.add(partitions, hidden=self._hidden - {key_of(p) for p in partitions})
        else:
            self._verify({p.topic for p in partitions})
            self._holding.manual = self.given is None
            self._holding.add(partitions)

    def unassign(self) -> None:
        if self._midlife is None:
            self._assigned_inside = True
            self._holding.unassign()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        if self._midlife is not None:
            return  # on_revoke in mid-life: what is let go is hidden afterwards
        unseen = self._changing & (self._holding.mine - self._holding.held) if self._in_callback else set()
        self._holding.remove([*partitions, *_parts(unseen)])

    # Changes of modes

    def apply(self, consumer: Any) -> None:
        """Bring the assignment in line with the views in force."""
        if self.given is None and not self._holding.manual:
            return  # between two generations: the next on_assign sees the views
        given = self.given if self.given is not None else set()
        if not self._holding.manual and not self._conf.incremental and self._redealt(given):
            return
        self._align(consumer)
        if not self._holding.manual:
            self._offsets.commit_read_only(self._holding.starts)

    def _redealt(self, given: set[Key]) -> bool:
        """Settle what is in doubt under ``range``; True if a rebalance is wanted, which then brings the assignment."""
        self._dealing.settle(given)
        if not self._subscribed or not self._dealing.wants_rejoin(given):
            return False
        self._offsets.commit_read_only(self._holding.starts)
        if self._dealing.my_turn(given):
            self._rejoin()
        return True

    def _rejoin(self) -> None:
        """Leave the group and join it again: a follower that only joins again starts no rebalance."""
        subscription = self.subscription
        if subscription is None:
            return
        log.info("%s: asking for a rebalance, the readable partitions have changed", self._conf.group_id)
        self._stock.unsubscribe()
        # Postponed by librdkafka until the revocation is through and the group is left; on_revoke notes the views.
        self._stock.subscribe(
            list(subscription.topics), on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost
        )

    def _align(self, consumer: Any) -> None:
        """Hide and show until what is held is what the views in force allow.

        The application is told as its protocol tells it: what goes and what comes, or a rebalance of all that it holds.
        """
        holding, all_of_it = self._holding, not self._conf.incremental
        target = holding.target - self._dealing.withheld
        if self._late:
            self._show(self._late & target)
        gone, back = holding.held - target, target - holding.held - self._late
        if not gone and not back:
            return
        log.info("%s: letting go %s, taking up %s", self._conf.group_id, sorted(gone), sorted(back))
        told = self.subscription if not holding.manual else None
        self._midlife, self._assigned_inside = target if all_of_it else back, False
        try:
            if told and (gone or all_of_it):
                self._call(told.on_revoke, consumer, _parts(holding.held if all_of_it else gone))
            holding.hide(gone)
            if told and (back or all_of_it):
                self._call(told.on_assign, consumer, _parts(target if all_of_it else back))
        finally:
            # Whatever the callbacks raise, what is held is right afterwards.
            self._midlife = None
            holding.hide(gone)
            if not self._assigned_inside:
                self._show(back)

    def _show(self, keys: Iterable[Key]) -> None:
        self._late = self._holding.show(keys)
        self._retry_s = self._now_s() + _RETRY_S if self._late else None

    def due_s(self) -> float | None:
        """When :meth:`apply` is to be called again, on the clock given; None if nothing waits."""
        times = [at for at in (self._dealing.due_s(), self._retry_s) if at is not None]
        return min(times, default=None)


def _parts(keys: Iterable[Key]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for topic, partition in sorted(keys)]
