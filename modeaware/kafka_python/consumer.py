"""kafka-python's KafkaConsumer, reading the partitions that are not in mode None."""

from __future__ import annotations

import time
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

from modeaware.callouts import get_logger
from modeaware.clients.following import ClientErrors, FirstView, ViewShare, acquired
from modeaware.clients.gates import Gates
from modeaware.clients.named import NamedTopics
from modeaware.clients.settings import split_settings
from modeaware.clients.starts import Starts
from modeaware.errors import ConfigError
from modeaware.kafka_python import _gateway
from modeaware.kafka_python._gateway import (
    KafkaError,
    KafkaTimeoutError,
    RebalanceProtocol,
    TopicPartition,
    deleted,
)
from modeaware.kafka_python.assignors import ReadableAssignor, aware_strategy
from modeaware.kafka_python.errors import FirstViewTimeout
from modeaware.kafka_python.gates import ChangedPattern, KafkaPythonGroup, as_name, matches
from modeaware.kafka_python.partitions import (
    COMMIT_TIMEOUT_MS,
    LEAST_LISTING_MS,
    HeldListener,
    KafkaPythonOffsets,
    Offsets,
    Partition,
    Partitions,
    start_lost_ones_anew,
)
from modeaware.modes import format_ranges
from modeaware.topic_view import TopicView
from modeaware.views.source import VERIFY_TIMEOUT_S

log = get_logger(__name__)

_VIEW_POLL_S = 0.5


class KafkaConsumer(_gateway.KafkaConsumer):  # type: ignore[misc,unused-ignore]  # untyped
    """``kafka.KafkaConsumer`` with the same settings, methods and listeners, aware of partition modes.

    * Partitions in mode None are left out of what is read and of what the application sees. When they are readable
      again, the member that the group gave them to reads them, without a rebalance.
    * kafka-python's assignors (``partition_assignment_strategy``) are replaced by ours
      (:mod:`modeaware.kafka_python.assignors`), under the same protocol names. A leader that assigned
      by other readable partitions than there are now requests a rebalance.
    * Where a topic is replaced, its successor is read after it (``modeaware_on_replace``).
    * Every start offset is a number from the assignment on; ``auto_offset_reset`` is resolved then, once.
    * Without a first view ``poll`` joins no group and returns nothing. After ``modeaware_view_timeout_ms``,
      ``modeaware_on_unknown`` decides: ``block`` continues so, ``writable`` reads every partition, ``error`` raises.

    Changes of modes are applied by the polling thread: at the next ``poll``, and inside a long one within about
    ``fetch_max_wait_ms``. Settings that begin with ``modeaware_`` are ours.

    Thread-safety: kafka-python's (one thread uses a consumer).

    Raises:
        ConfigError: an unknown or bad ``modeaware_`` setting, or one that cannot be translated for the views.
        KafkaError: as from kafka-python.
    """

    def __init__(self, *topics: str, **configs: Any) -> None:
        settings = split_settings(configs)
        if settings.config.topic_names == "logical":
            raise ConfigError(
                "modeaware_topic_names: 'logical' is not supported with kafka-python's consumer, which cannot "
                "rename its records; leave it out, or use confluent_kafka's consumer"
            )
        theirs = _gateway.named_client(settings.theirs)
        strategy = theirs.get("partition_assignment_strategy", self.DEFAULT_CONFIG["partition_assignment_strategy"])
        with acquired({**settings.conf, "group.id": theirs.get("group_id")}, settings.config) as views:
            theirs["partition_assignment_strategy"] = tuple(aware_strategy(strategy, views.view))
            super().__init__(**theirs)
            self._create(False)  # until it is known what has become of the topics
            if topics:
                super().subscribe(topics)
        self._views = views
        self._first_view = FirstView(settings.config, views.wait_ready, views, ClientErrors(timeout=FirstViewTimeout))
        self._named = NamedTopics(views, self._first_view)
        group_id = self.config["group_id"] or ""
        self._starts = Starts(views, self.config["auto_offset_reset"], group_id)
        self._gates = gates = Gates(
            KafkaPythonGroup(self, self._starts, has_group=self._has_group),
            group_id,
            bool(self._coordinator.config["enable_auto_commit"]),
            settings.config,
            views,
            self._starts,
            match=matches,
        )
        self._partitions = Partitions(self._subscription, self._starts, views.view, lambda topic: topic in gates.shut)
        self._subscription.all_consumed_offsets = self._partitions.consumed_offsets
        self._names: tuple[str, ...] = topics
        self._names_noted = True
        self._widened = False
        self._cooperative: bool = self._coordinator._rebalance_protocol == RebalanceProtocol.COOPERATIVE
        start_lost_ones_anew(self._coordinator, self._partitions, incremental=self._cooperative)
        self._auto_commit: bool = self._coordinator.config["enable_auto_commit"]
        self._noted = True
        self._rejoins = 0
        self._looked_ms = 0.0  # at which of kafka-python's metadata
        self._find_again_s = self._place_again_s = 0.0
        self._backoff_s: float = self.config["retry_backoff_ms"] / 1000
        if topics:
            self._subscription.rebalance_listener = self._held_listener(None)
        _gateway.add_listener(self._cluster, lambda _: views.refresh_soon())
        self._in_position = False
        self._share = ViewShare(self, views, self._note)

    def _held_listener(self, inner: Any) -> HeldListener:
        return HeldListener(
            inner,
            self._partitions,
            weakref.ref(self._coordinator),
            incremental=self._cooperative,
            auto_commit=self._auto_commit,
        )

    # Subscription and assignment

    def subscribe(self, topics: Sequence[str] = (), pattern: str | None = None, listener: Any = None) -> None:
        """As ``kafka.KafkaConsumer.subscribe``. The listener sees the partitions that are really held.

        A change of modes within a generation is shown to it: under an eager protocol as a rebalance (all that is held
        revoked, then assigned what is held afterwards), under a cooperative one as what goes and what comes.
        """
        kinds = (_gateway.ConsumerRebalanceListener, _gateway.AsyncConsumerRebalanceListener)
        if not listener or isinstance(listener, kinds):  # anything else is kafka-python's to refuse
            listener = self._held_listener(listener or None)
        super().subscribe(topics=topics, pattern=pattern, listener=listener)
        self._names = tuple(topics) if pattern is None else (as_name(pattern),)
        self._noted = self._names_noted = True

    def subscription(self) -> set[str] | None:
        """As ``kafka.KafkaConsumer.subscription``: the topics that the application has named, or that its pattern
        matches."""
        subscription: set[str] | None = super().subscription()
        if subscription is None or self._subscription.subscribed_pattern is None:
            return subscription and set(self._names)
        return subscription - self._gates.added

    def assign(self, partitions: Sequence[Partition]) -> None:
        """As ``kafka.KafkaConsumer.assign``; partitions in mode None wait until they are readable again."""
        self._create(True)
        super().assign(partitions)
        self._verify(partition.topic for partition in partitions)
        self._partitions.settle()
        self._noted = True
        for topic in sorted({p.topic for p in self._partitions.hidden}):
            left_out = format_ranges(p.partition for p in self._partitions.hidden if p.topic == topic)
            log.warning("%s: partitions %s are in mode None and left out until they are readable", topic, left_out)

    def unsubscribe(self) -> None:
        """As ``kafka.KafkaConsumer.unsubscribe``."""
        super().unsubscribe()
        self._names = ()
        self._partitions.settle()

    def assignment(self) -> set[Partition]:
        """As ``kafka.KafkaConsumer.assignment``: the partitions that are read, none of mode None."""
        return self._partitions.held()

    # Where to read

    def pause(self, *partitions: Partition) -> None:
        """As ``kafka.KafkaConsumer.pause``."""
        super().pause(*partitions)
        self._partitions.paused_by_application(partitions)

    def resume(self, *partitions: Partition) -> None:
        """As ``kafka.KafkaConsumer.resume``; partitions in mode None follow when they are readable again."""
        super().resume(*self._partitions.resumed_by_application(partitions))

    def paused(self) -> set[Partition]:
        """As ``kafka.KafkaConsumer.paused``."""
        paused: set[Partition] = super().paused()
        return paused - self._partitions.hidden

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """As ``kafka.KafkaConsumer.seek_to_beginning``; without arguments, of all partitions that are read."""
        super().seek_to_beginning(*(partitions or self._all_held()))

    def seek_to_end(self, *partitions: Partition) -> None:
        """As ``kafka.KafkaConsumer.seek_to_end``; without arguments, of all partitions that are read."""
        super().seek_to_end(*(partitions or self._all_held()))

    def _all_held(self) -> set[Partition]:
        held = self._partitions.held()
        if not held:
            raise ValueError("No partitions are currently assigned")
        return held

    def position(self, partition: Partition, timeout_ms: float | None = None) -> Any:
        """As ``kafka.KafkaConsumer.position``: waits where the start is not known yet (the leader is away, say)."""
        wait_ms = self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        deadline_s = time.monotonic() + wait_ms / 1000
        while True:
            left_s = max(0.0, deadline_s - time.monotonic())
            self._in_position = True  # polls alone change what is held: this may be a rebalance listener
            try:
                position = super().position(partition, None if timeout_ms is None else left_s * 1000)
            finally:
                self._in_position = False
            if left_s == 0 or partition not in self._subscription.missing_fetch_positions():
                return position
            time.sleep(min(left_s, self._backoff_s))  # kafka-python's own pause before it tries again

    # Calls that name topics, and read nothing

    def writable_partitions(self, topic: str) -> tuple[int, ...]:
        """See :meth:`modeaware.Producer.writable_partitions`; nothing where the cluster has no such topic.

        Raises:
            ModeSourceError, FirstViewTimeout: no view of the modes yet, by ``modeaware_on_unknown``.
        """
        stock = super().partitions_for_topic
        return self._named.writable_partitions(topic, lambda found: len(stock(found)))

    def partitions_for_topic(self, topic: str) -> set[int]:
        """As ``kafka.KafkaConsumer.partitions_for_topic``, those in mode None too.

        Under the name of a topic that was replaced and is gone, those of the topic that the name leads to; so do
        :meth:`committed`, :meth:`beginning_offsets`, :meth:`end_offsets` and :meth:`offsets_for_times`.
        """
        found: set[int] = super().partitions_for_topic(self._named.present(topic))
        return found

    def committed(self, partition: Partition, metadata: bool = False, timeout_ms: float | None = None) -> Any:
        """As ``kafka.KafkaConsumer.committed``; see :meth:`partitions_for_topic`."""
        return super().committed(self._led(partition), metadata=metadata, timeout_ms=timeout_ms)

    def beginning_offsets(self, partitions: Iterable[Partition], timeout_ms: float | None = None) -> Offsets:
        """As ``kafka.KafkaConsumer.beginning_offsets``; see :meth:`partitions_for_topic`."""
        led = {each: self._led(each) for each in partitions}
        return _under_names(led, super().beginning_offsets([*led.values()], timeout_ms))

    def end_offsets(self, partitions: Iterable[Partition], timeout_ms: float | None = None) -> Offsets:
        """As ``kafka.KafkaConsumer.end_offsets``; see :meth:`partitions_for_topic`."""
        led = {each: self._led(each) for each in partitions}
        return _under_names(led, super().end_offsets([*led.values()], timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[Partition, int], timeout_ms: float | None = None
    ) -> dict[Partition, Any]:
        """As ``kafka.KafkaConsumer.offsets_for_times``; see :meth:`partitions_for_topic`."""
        led = {each: self._led(each) for each in timestamps}
        asked = {led[each]: timestamp for each, timestamp in timestamps.items()}
        return _under_names(led, super().offsets_for_times(asked, timeout_ms))

    def _led(self, partition: Partition) -> Partition:
        if not isinstance(partition, TopicPartition):
            return partition  # kafka-python's to refuse
        topic = self._named.present(partition.topic)
        return partition if topic == partition.topic else TopicPartition(topic, partition.partition)

    # Life

    @wraps(_gateway.KafkaConsumer.close, assigned=(), updated=())
    def close(self, *args: Any, **kwargs: Any) -> None:
        """As ``kafka.KafkaConsumer.close``; the share of the views is given back first."""
        self._share.release()
        super().close(*args, **kwargs)

    def modeaware_stats(self) -> dict[str, Any]:
        """As :meth:`modeaware.Consumer.modeaware_stats`; ``state`` is ``waiting`` or ``direct``. Without
        ``in_doubt``."""
        return {
            "state": "direct" if self._first_view.over or self._views.ready else "waiting",
            "assigned": len(self._partitions.held()),
            "hidden": len(self._partitions.hidden),
            "rejoins": self._rejoins,
            "gates": self._gates.stats(),
            "views": self._views.stats(),
        }

    # Work of the polling thread

    def _note(self, changed: Mapping[str, TopicView]) -> None:
        """Leave a note for the polling thread (called by the source's thread)."""
        for topic, view in changed.items():
            self._starts.remember(view)
            self._partitions.changed.add(topic)
        self._noted = self._names_noted = True

    def _poll_once(self, timer: Any, max_records: int, update_offsets: bool = True) -> Any:
        if not self._first_view.over and not self._first_view.arrived(min(timer.timeout_ms / 1000, _VIEW_POLL_S)):
            return {}
        self._follow_topics()
        if self._looked_ms != self._cluster._last_successful_refresh_ms:
            self._forget_deleted()
        if self._noted:
            self._commit_idle()  # what a rebalance may take
            self._rejoin_if_stale()
        if self._grouped and self._coordinator.rejoin_needed:
            self._verify(self._subscription.subscription)  # before it joins, and perhaps assigns
        if self._coordinator.rejoining:
            # kafka-python 3.0.12 forgets a join that a short poll began because the metadata had changed: dealing makes
            # it believe that it need not join, it never takes its assignment, and its heartbeats stay off.
            self._coordinator.request_rejoin()
        return super()._poll_once(timer, max_records, update_offsets=update_offsets)

    def _follow_topics(self) -> None:
        """Look at the gates; subscribe to other topics where the application's are replaced."""
        due_s = self._gates.due_s()
        if not self._names or not (self._names_noted or (due_s is not None and time.monotonic() >= due_s)):
            return
        self._names_noted = False
        gates, assigned, shut = self._gates, self._partitions.assigned(), self._gates.shut
        if assigned:
            gates.follow(assigned, self._names)
            gates.topics(self._names)  # which topics are the group's decides what a gate waits for
            gates.look(assigned, self._partitions.held())
        else:
            gates.ask_before_joining(self._names)
        self._noted |= gates.shut != shut
        topics = gates.topics(self._names)
        subscription = self._subscription
        self._widened |= bool(gates.added)
        self._create(not self._widened)
        if subscription.subscribed_pattern is not None:
            before = subscription.subscribed_pattern
            pattern = ChangedPattern(before.pattern, set(topics).difference(self._names), gates.left_out)
            if pattern.changes != getattr(before, "changes", ChangedPattern("").changes):
                subscription.subscribed_pattern = pattern
                self._cluster.request_update()
        elif set(topics) != subscription.subscription:
            log.info(
                "%s: %s, replaced: subscribing to %s from now on", self.config["group_id"], [*self._names], [*topics]
            )
            self._partitions.left |= subscription.subscription.difference(topics)
            subscription.change_subscription(topics)
            self._cluster.set_topics(subscription.group_subscription())

    def _forget_deleted(self) -> None:
        """Request the metadata of topics that were replaced and deleted no more."""
        cluster, subscription = self._cluster, self._subscription
        self._looked_ms = cluster._last_successful_refresh_ms
        if not self._names or subscription.subscribed_pattern is not None:
            return  # assigned by the application; or the metadata of all topics is requested
        wanted = subscription.group_subscription() or ()
        gone = deleted(set(cluster._topics).difference(wanted), self._views)
        cluster._topics = cluster._topics - gone  # anew: kafka-python's thread may be iterating over it
        cluster.set_topics(subscription.group_subscription() or ())  # one of them may have come back meanwhile

    def _create(self, allowed: bool) -> None:
        """Let brokers create topics that are looked up, where ``allow_auto_create_topics`` does (kafka-python's 3.0.12
        does not heed it). But not once one was replaced: kafka-python goes on to look up what it was subscribed to,
        which would bring up again a topic that was deleted, the successor of an undone replacement, say."""
        allowed = allowed and self.config["allow_auto_create_topics"]
        if self._cluster.config["allow_auto_create_topics"] != allowed:
            self._cluster.config["allow_auto_create_topics"] = allowed
            self._cluster.request_update()

    def _verify(self, topics: Iterable[str]) -> None:
        """Drop the views of topics that were deleted, and created again under their names (invariant I8)."""
        self._views.verify(topics, VERIFY_TIMEOUT_S)

    def _rejoin_if_stale(self) -> None:
        """Request a rebalance, if this member leads the group and other partitions are readable than it assigned by."""
        coordinator = self._coordinator
        if not coordinator._is_leader or coordinator.rejoin_needed:
            return
        # The other assignors may be of earlier generations, by another protocol.
        assignor = coordinator._assignors.get(coordinator._generation.protocol)
        if isinstance(assignor, ReadableAssignor) and assignor.stale():
            log.info("%s: requesting a rebalance, the readable partitions have changed", self.config["group_id"])
            self._rejoins += 1
            coordinator.request_rejoin()

    def _refresh_committed_offsets(self, timeout_ms: float | None = None) -> bool:
        # kafka-python calls this after a rebalance and before it fetches, in the polling thread.
        if not self._subscription.partitions_auto_assigned():
            self._align()
            done: bool = super()._refresh_committed_offsets(timeout_ms=timeout_ms)
            return done
        missing = self._subscription.missing_fetch_positions()
        unknown: set[Partition] = set()
        if missing:
            requested_s = time.monotonic()
            if requested_s < self._find_again_s:
                return False
            self._verify(partition.topic for partition in missing)
            self._gates.on_assign(missing, self._partitions.assigned())
            try:
                starts, unknown = self._starts.find(
                    missing, KafkaPythonOffsets(self, timeout_ms), group=self._has_group, ask_again=True
                )
            except KafkaTimeoutError:
                return False
            for partition, start in starts.items():
                self._subscription.seek(partition, start)
                self._starts.started(partition, start)
        if missing or not self._in_position:
            self._align(new=bool(missing))
        if unknown:
            took_s = time.monotonic() - requested_s  # and as long again the others are read
            self._find_again_s = time.monotonic() + max(self._backoff_s, took_s)
            self._cluster.request_update()
            return False
        self._subscription.reset_missing_positions()
        all_known: bool = self._subscription.has_all_fetch_positions()
        return all_known

    @property
    def _has_group(self) -> bool:
        return self.config["group_id"] is not None and self.config["api_version"] >= (0, 9)

    def _align(self, *, new: bool = False) -> None:
        """Bring what is held in line with the views in force, and tell the application."""
        if not self._noted and not new and not self._partitions.unplaced:
            return
        self._noted = False
        try:
            self._rejoin_if_stale()  # a note that came since the last look is taken here
            if not self._names:
                self._gates.warn_of_manual({p.topic for p in self._partitions.assigned()})
            self._partitions.skip_to_log_starts(self._log_starts)
            gone, back = self._partitions.changes()
            listener = self._subscription.rebalance_listener if self._grouped else None
            if not isinstance(listener, HeldListener) or not (gone or back):
                self._partitions.settle()
            else:
                self._change(listener, gone, back)
        except Exception:
            self._noted = True  # the next poll tries again
            raise
        self._commit_idle()

    def _log_starts(self, partitions: Collection[Partition]) -> Offsets:
        """Request log starts; where a leader does not answer, not again for as long: the others are read meanwhile."""
        began_s = time.monotonic()
        if began_s < self._place_again_s:
            return {}
        found: Offsets = {}
        for topic in {partition.topic for partition in partitions}:  # a right may be missing to one of them
            try:
                found |= KafkaPythonOffsets(self, LEAST_LISTING_MS).log_starts(
                    [partition for partition in partitions if partition.topic == topic]
                )
            except KafkaError as error:
                log.warning("%s: not read yet, its log starts are not known: %s", topic, error)
        if len(found) < len(partitions):
            now_s = time.monotonic()
            self._place_again_s = now_s + max(self._backoff_s, now_s - began_s)
        return found

    def _commit_idle(self) -> None:
        """Commit where idle partitions started: ReadOnly ones, which the controller waits for.

        Under a cooperative protocol, whose revocations come when the positions are gone, also those that a change of
        modes may take away, unless kafka-python commits all positions. (For eager ones HeldListener does it.)
        """
        if not self._grouped:
            return
        idle = self._partitions.idle()
        if self._cooperative and not self._auto_commit:
            idle |= self._partitions.idle(leaving=True)
        if not idle:
            return
        try:
            # Requested now: an earlier owner, or the application by other means, may have committed since.
            known = self._coordinator.fetch_committed_offsets(set(idle), timeout_ms=COMMIT_TIMEOUT_MS)
            self._starts.has_commit.update(known)
            without = {partition: offset for partition, offset in idle.items() if partition not in known}
            self._coordinator.commit_offsets_sync(without, timeout_ms=COMMIT_TIMEOUT_MS)
            self._starts.has_commit.update(without)
        except KafkaError as error:
            log.warning("start offsets of %d idle partitions not committed: %s", len(idle), error)
            self._noted = True  # try again

    @property
    def _grouped(self) -> bool:
        return self._has_group and bool(self._subscription.partitions_auto_assigned())

    def _change(self, listener: HeldListener, gone: set[Partition], back: set[Partition]) -> None:
        log.info("%s: hiding %s, showing %s", self.config["group_id"], sorted(gone), sorted(back))
        whole = not listener.incremental
        try:
            if gone or whole:
                self._call(listener, "on_partitions_revoked", self._partitions.held() if whole else gone)
        finally:
            # Whatever the listener raises, what is held is right afterwards.
            self._partitions.settle()
        if back or whole:
            self._call(listener, "on_partitions_assigned", self._partitions.held() if whole else back)

    def _call(self, listener: HeldListener, method: str, partitions: set[Partition]) -> None:
        if listener.inner is None:
            return
        try:
            self._net.run(listener.call, method, partitions)  # in kafka-python's thread, as in a rebalance
        except Exception as error:
            raise KafkaError("User rebalance callback throws an error") from error


def _under_names(led: Mapping[Partition, Partition], found: Mapping[Partition, Any]) -> dict[Partition, Any]:
    """Return what was ``found`` of partitions under those that the application gave for them."""
    return {given: found[asked] for given, asked in led.items() if asked in found}
