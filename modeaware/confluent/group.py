"""A confluent_kafka consumer as a member of its group: what it owns, what it reads, and when it requests a rebalance.

librdkafka calls :meth:`Membership.on_assign` with the partitions that the coordinator gave to this member, all modes
included. Of these it reads:

* the readable ones, by the views in force; those in mode None are assigned and hidden
  (:mod:`modeaware.confluent.partitions`), and shown when they are readable again;
* under ``range``, which deals contiguous runs, only those that it *owns* by range's rule over the readable partitions
  (:mod:`modeaware.clients.assignment` has the theory). For that :class:`~modeaware.confluent.ownership.Ownership` notes
  the views at the join, reads the mode log after the assignment, and where partitions are hidden, has the coordinator
  describe the group. Topics for which that is not certain are *in doubt*: their partitions are withheld until it is,
  for ``ownership.GIVE_UP_S`` at most; then the plain assignment stands. Where the modes have changed since, the members
  take turns in requesting a rebalance.

So a partition that was given and is not read is hidden by its mode, withheld (in doubt, or owned by another member), or
declined by the application. A change of modes leaves a note for the polling thread, whose next poll calls
:meth:`Membership.apply`. The application sees its callbacks called with what it really holds.

All of it is for the polling thread, which the callbacks run in, except ``Ownership.note``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.callouts import get_logger
from modeaware.clients.starts import Key
from modeaware.confluent.gates import Gates
from modeaware.confluent.ownership import GroupConf, Ownership, topics_of
from modeaware.confluent.partitions import Partitions, key_of, parts_of
from modeaware.librdkafka import TopicPartition
from modeaware.views.source import VERIFY_TIMEOUT_S, Views

log = get_logger(__name__)

SHOW_RETRY_S = 0.05
UNOWNED_S = 5.0
"""How long a successor may have no owner before a static member asks for a rebalance."""

Callback = Callable[[Any, list[TopicPartition]], Any]


@dataclass(frozen=True)
class Subscription:
    """What the application subscribed to, with its callbacks."""

    topics: tuple[str, ...]
    on_assign: Callback | None = None
    on_revoke: Callback | None = None
    on_lost: Callback | None = None

    def covers(self, topic: str) -> bool:
        """Return whether changes of ``topic`` may concern this subscription (librdkafka matches patterns: any may)."""
        return topic in self.topics or any(name.startswith("^") for name in self.topics)


class Membership:
    """Stands between librdkafka's rebalances and the application.

    Attributes:
        subscription: the last one; stays after ``unsubscribe()``, whose revocation still calls back.
        given: what the group gave to this member in this generation; None while it has no assignment.

    Args:
        look_again: has :meth:`apply` called by the polling thread soon.
    """

    def __init__(
        self,
        stock: Any,
        conf: GroupConf,
        partitions: Partitions,
        ownership: Ownership,
        gates: Gates,
        views: Views,
        look_again: Callable[[], None],
    ) -> None:
        self._stock = stock
        self._conf = conf
        self._partitions = partitions
        self._ownership = ownership
        self._gates = gates
        self._views = views
        self._look_again = look_again
        self._in_callback = False
        self._assigned_inside = False
        self._midlife: set[Key] | None = None
        self._hidden: set[Key] = set()
        self._changing: set[Key] = set()
        self._late: set[Key] = set()
        self._closing = self._subscribed = False
        self._retry_s: float | None = None
        self._unowned_s: float | None = None
        self._unowned_wait_s = UNOWNED_S
        self.subscription: Subscription | None = None
        self.given: set[Key] | None = None

    def join(self) -> None:
        """Subscribe for real; the views must be noted before."""
        self._ownership.before_join()
        self._partitions.manual = False
        self._subscribed = True
        if self.subscription is not None:
            self._gates.ask_before_joining(self.subscription.topics)
            self._gates.topics(self.subscription.topics)
        self._subscribe()
        if self._gates.due_s() is not None:
            self._look_again()

    def _subscribe(self) -> None:
        """Subscribe to what is read in the place of the topics that the application has named."""
        if self.subscription is not None:
            self._stock.subscribe(
                list(self._gates.subscribed),
                on_assign=self.on_assign,
                on_revoke=lambda consumer, partitions: self._revoke(consumer, partitions, lost=False),
                on_lost=lambda consumer, partitions: self._revoke(consumer, partitions, lost=True),
            )

    def leave(self) -> None:
        """Request no rebalance any more; the application's callbacks still see the last revocation."""
        self._subscribed = False

    # What librdkafka calls

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """``partitions`` is the whole assignment (eager), or what is added to it (incremental)."""
        if self._closing:
            return  # librdkafka gives them back at once, and every request for their offsets would time out
        new = {key_of(p) for p in partitions}
        self._views.verify(topics_of(new), VERIFY_TIMEOUT_S)  # before anything is decided by a view (invariant I8)
        self._partitions.manual = False
        if self._conf.incremental:
            self.given = (self.given or set()) | new
        else:
            self.given, new = new, self._ownership.assigned(new)
        self._gates.on_assign(new, self.given)
        shown = self._partitions.readable(new) - self._ownership.withheld
        self._hidden = new - shown
        callback = self.subscription.on_assign if self.subscription else None
        self._assigned_inside = False
        try:
            self._call(callback, consumer, shown)
        finally:
            if not self._assigned_inside:
                take = self._partitions.add if self._conf.incremental else self._partitions.assign
                take(parts_of(shown), hidden=self._hidden)
            # What is hidden may be readable by now; and a callback that raises must not leave it hidden.
            waits = self._partitions.unseen or self._ownership.unsettled or self._gates.due_s() is not None
            if waits or self._conf.static:
                self._look_again()
        self._partitions.commit()
        self._gates.close_unused()  # it may have been asked where partitions start

    def _revoke(self, consumer: Any, partitions: list[TopicPartition], *, lost: bool) -> None:
        callback = None
        if self.subscription is not None:
            callback = (self.subscription.on_lost if lost else None) or self.subscription.on_revoke
        revoked = {key_of(p) for p in partitions}
        held = revoked & self._partitions.held if self._conf.incremental else set(self._partitions.held)
        idle = self._partitions.idle_before_leaving(held)
        self._late = self._late - revoked if self._conf.incremental else set()
        self._retry_s = self._retry_s if self._late else None
        self._changing, self._hidden = revoked, set()
        try:
            # A revocation of hidden partitions only is none to the application.
            if held or not revoked:
                self._call(callback, consumer, held)
            if not lost and not self._closing:
                self._commit(idle)
        finally:
            self._ownership.before_join()
            # librdkafka's client unassigns what it revokes, unless the application did.
            if self._conf.incremental:
                self.given = (self.given or set()) - revoked
                self._partitions.forget(revoked)
            else:
                self.given = None
                self._partitions.clear()

    def before_close(self) -> None:
        """The last chance to send a request to the coordinator: within ``close()`` none is sent any more."""
        self._closing = True
        if self.given is not None:
            self._commit(self._partitions.idle_before_leaving(self._partitions.held))

    def _commit(self, idle: Mapping[Key, int]) -> None:
        """Commit for the next owner; without ``enable.auto.commit`` only if it is a change of modes that may have
        brought the rebalance about."""
        auto = self._conf.auto_commit
        self._partitions.commit({key: at for key, at in idle.items() if auto or self._ownership.changed(key[0])})

    def _call(self, callback: Callback | None, consumer: Any, keys: Iterable[Key]) -> None:
        if callback is None:
            return
        self._in_callback = True
        try:
            callback(consumer, parts_of(keys))
        finally:
            self._in_callback = False

    # What the application does itself, in its callbacks or outside

    def assign(self, partitions: list[TopicPartition], *, incremental: bool = False) -> None:
        """``assign`` or ``incremental_assign``; in mid-life, only what is offered may be chosen."""
        take = self._partitions.add if incremental else self._partitions.assign
        if self._midlife is not None:
            self._assigned_inside = True
            began_s = time.monotonic()
            self._show_later(self._partitions.choose(self._midlife, partitions), began_s)
        elif self._in_callback:
            self._assigned_inside = True
            take(partitions, hidden=self._hidden - {key_of(p) for p in partitions})
        else:
            self._views.verify({p.topic for p in partitions}, VERIFY_TIMEOUT_S)
            self._partitions.manual = self.given is None
            # What a member was never shown it has not left out: it is shown when it is readable, as ever.
            unseen = self._partitions.unseen if self.given is not None and not incremental else set()
            take(partitions, hidden=unseen - {key_of(p) for p in partitions})
            if self._partitions.manual:
                self._gates.warn_of_manual(topics_of(self._partitions.mine))

    def unassign(self) -> None:
        if self._midlife is None:
            self._assigned_inside = True
            self._partitions.unassign()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        if self._midlife is not None:
            return  # on_revoke in mid-life: what goes is hidden afterwards
        unseen = self._changing & (self._partitions.mine - self._partitions.held) if self._in_callback else set()
        self._partitions.remove([*partitions, *parts_of(unseen)])

    # Changes of modes

    def apply(self, consumer: Any) -> None:
        """Bring the assignment in line with the views in force."""
        if self._partitions.manual:
            self._gates.warn_of_manual(topics_of(self._partitions.mine))
            self._align(consumer)
            return
        self._follow_topics()
        if self.given is None:
            return  # between two generations: the next on_assign sees the views
        if self._conf.incremental or not self._settled_by_rejoin(self.given):
            self._align(consumer)
            self._partitions.commit()

    def _follow_topics(self) -> None:
        """Look at the gates; subscribe to other topics where the application's are replaced."""
        if self.subscription is None or not self._subscribed:
            return
        self._gates.follow(self.given or (), self.subscription.topics)
        self._gates.look(self._partitions.mine, self._partitions.held)
        before, after = self._gates.subscribed, self._gates.topics(self.subscription.topics)
        if set(before) != set(after):
            log.info(
                "%s: %s, replaced: subscribing to %s from now on, no longer to %s",
                self._conf.group_id, list(self.subscription.topics), list(after), sorted(set(before) - set(after)),
            )  # fmt: skip
            self._ownership.before_join()
            self._subscribe()
        elif self.given is not None:
            self._claim_unowned(self.given)

    def _claim_unowned(self, given: set[Key]) -> None:
        """Request a rebalance where a topic that this static member subscribes to has no owner.

        A static member that starts again is given what it had, without a rebalance, also where it subscribes to more
        than before (KAFKA-12759): after a rolling restart no member might be given the successor.
        """
        missing = self._gates.successors - topics_of(given) if self._conf.static else set()
        if not missing:
            self._unowned_s = None
        elif self._unowned_s is None:
            self._unowned_s = time.monotonic() + self._unowned_wait_s
        elif time.monotonic() >= self._unowned_s:
            self._unowned_wait_s *= 2  # it may be that none can be given
            self._unowned_s = time.monotonic() + self._unowned_wait_s
            if self._ownership.lacks_owner(missing, given):
                log.info("%s: requesting a rebalance, no member was given %s", self._conf.group_id, sorted(missing))
                self._rejoin()

    def _rejoin(self) -> None:
        """Leave the group and join it again: a follower that only joins again starts no rebalance."""
        self._stock.unsubscribe()
        # Postponed by librdkafka until the revocation is through and the group is left; which notes the views.
        self._subscribe()

    def _settled_by_rejoin(self, given: set[Key]) -> bool:
        """Settle what is in doubt under ``range``; True if a rebalance is needed, which then brings the assignment."""
        self._ownership.settle(given)
        if not self._subscribed or not self._ownership.needs_rejoin(given):
            return False
        self._partitions.commit()
        if self._ownership.my_turn(given):
            log.info("%s: requesting a rebalance, the readable partitions have changed", self._conf.group_id)
            self._rejoin()
        return True

    def _align(self, consumer: Any) -> None:
        """Hide and show until what is held is what the views in force allow.

        The application's callbacks are called as under its protocol: with what goes and what comes, or with all that it
        holds.
        """
        partitions, eager = self._partitions, not self._conf.incremental
        withheld = set() if partitions.manual else self._ownership.withheld  # else of a subscription that has ended
        target = partitions.target - withheld
        self._late &= target
        if self._retry_s is not None and time.monotonic() >= self._retry_s:
            late, self._late, self._retry_s = self._late, set(), None
            self._show(late)
        if partitions.let_end():
            self._retry_s = time.monotonic() + SHOW_RETRY_S
        gone, back = partitions.held - target, target - partitions.held - self._late
        if not gone and not back:
            return
        log.info("%s: hiding %s, showing %s", self._conf.group_id, sorted(gone), sorted(back))
        callbacks = self.subscription if not partitions.manual else None
        self._midlife, self._assigned_inside = target if eager else back, False
        try:
            if callbacks and (gone or eager):
                self._call(callbacks.on_revoke, consumer, partitions.held if eager else gone)
            partitions.hide(gone)
            if callbacks and (back or eager):
                self._call(callbacks.on_assign, consumer, target if eager else back)
        finally:
            # Whatever the callbacks raise, what is held is right afterwards.
            self._midlife = None
            partitions.hide(gone)
            if not self._assigned_inside:
                self._show(back)

    def _show(self, keys: Iterable[Key]) -> None:
        began_s = time.monotonic()
        self._show_later(self._partitions.show(keys), began_s)

    def _show_later(self, late: set[Key], began_s: float) -> None:
        if late:
            self._late |= late
            now_s = time.monotonic()  # a leader that does not answer must not keep the others from being read
            self._retry_s = now_s + max(SHOW_RETRY_S, now_s - began_s)

    def due_s(self) -> float | None:
        """Return when :meth:`apply` is to be called again, on the monotonic clock; None if nothing waits."""
        gates = (self._gates.due_s(), self._unowned_s) if self._subscribed else ()
        times = (self._ownership.due_s(), self._retry_s, *gates)
        return min((at for at in times if at is not None), default=None)
