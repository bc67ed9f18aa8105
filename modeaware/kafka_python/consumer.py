"""kafka-python's KafkaConsumer, reading the partitions that are not in mode None."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from typing import Any

from modeaware.kafka_python import _gateway
from modeaware.kafka_python._connection import Hint, Notes, named_client
from modeaware.kafka_python._first_view import FirstView
from modeaware.kafka_python._gateway import KafkaError, KafkaTimeoutError, RebalanceProtocol, TopicPartition
from modeaware.kafka_python._holding import Holding
from modeaware.kafka_python._idle import IdleCommits
from modeaware.kafka_python._listener import HeldListener
from modeaware.kafka_python._starts import Partition, Starts
from modeaware.kafka_python._stock import Stock
from modeaware.kafka_python.assignors import ReadableAssignor, aware_strategy
from modeaware.keyword_settings import split_settings
from modeaware.modes import format_ranges
from modeaware.topic_view import TopicView
from modeaware.views import registry
from modeaware.views.share import Share
from modeaware.views.source import VERIFY_TIMEOUT_S

log = logging.getLogger(__name__)

_VIEW_POLL_S = 0.5


class KafkaConsumer(_gateway.KafkaConsumer):  # type: ignore[misc,unused-ignore]  # untyped
    """``kafka.KafkaConsumer`` with the same settings, methods and listeners, aware of partition modes.

    * Partitions in mode None are left out of what is read and of what the application sees, and taken up when they are
      readable again, by the member the group gave them to, without a rebalance.
    * kafka-python's assignors (``partition_assignment_strategy``) are replaced by ours
      (:mod:`modeaware.kafka_python.assignors`), under the same protocol names. A leader that dealt by other readable
      partitions than there are now asks for a rebalance.
    * Every start offset is a number from the assignment on; ``auto_offset_reset`` is asked then and not again.
    * Without a first view ``poll`` joins no group and returns nothing. After ``modeaware_view_timeout_ms``,
      ``modeaware_on_unknown`` decides: ``block`` goes on so, ``writable`` reads every partition, ``error`` raises.

    Changes of modes are applied by the polling thread: at the next ``poll``, and inside a long one within about
    ``fetch_max_wait_ms``. Settings that begin with ``modeaware_`` are ours.

    Thread-safety: kafka-python's (one thread uses a consumer).

    Raises:
        ConfigError: an unknown or bad ``modeaware_`` setting, or one that cannot be translated for the views.
        KafkaError: as from kafka-python.
    """

    def __init__(self, *topics: str, **configs: Any) -> None:
        settings = split_settings(configs)
        # Without the callback: the source of the views outlives the client, and must not keep what hangs on it.
        views = registry.acquire(settings.conf, replace(settings.config, resize_callback=None))
        theirs = named_client(settings.theirs)
        strategy = theirs.get("partition_assignment_strategy", self.DEFAULT_CONFIG["partition_assignment_strategy"])
        theirs["partition_assignment_strategy"] = tuple(aware_strategy(strategy, views.view))
        with ExitStack() as undo:
            undo.callback(views.close)
            super().__init__(*topics, **theirs)
            undo.pop_all()
        self._views = views
        self._first_view = FirstView(settings.config, views.wait_ready, views.error)
        self._starts = Starts(views.view, self.config["auto_offset_reset"])
        self._holding = Holding(self._subscription, self._starts, views.view)
        self._changed: set[str] = set()
        self._cooperative: bool = self._coordinator._rebalance_protocol == RebalanceProtocol.COOPERATIVE
        self._auto_commit: bool = self._coordinator.config["enable_auto_commit"]
        changes = (self._holding, self._starts, self._changed)
        self._idle = IdleCommits(self._coordinator, *changes, before_moves=self._cooperative and not self._auto_commit)
        self._noted = True
        self._rejoins = 0
        self._find_again_s = 0.0
        self._backoff_s: float = self.config["retry_backoff_ms"] / 1000
        if topics:
            self._subscription.rebalance_listener = self._held_listener(None)
        self._cluster.add_listener(Hint(views))
        self._share = Share(self, views, Notes(self._note))

    def _held_listener(self, inner: Any) -> HeldListener:
        return HeldListener(
            inner,
            self._holding,
            self._starts,
            weakref.ref(self._coordinator),
            incremental=self._cooperative,
            auto_commit=self._auto_commit,
            changed=self._changed,
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
        self._noted = True

    def assign(self, partitions: Sequence[Partition]) -> None:
        """As ``kafka.KafkaConsumer.assign``; partitions in mode None wait until they are readable again."""
        super().assign(partitions)
        self._verify(partition.topic for partition in partitions)
        self._holding.settle()
        self._noted = True
        for topic in sorted({p.topic for p in self._holding.hidden}):
            left_out = format_ranges(p.partition for p in self._holding.hidden if p.topic == topic)
            log.warning("%s: partitions %s are in mode None and left out until they are readable", topic, left_out)

    def unsubscribe(self) -> None:
        """As ``kafka.KafkaConsumer.unsubscribe``."""
        super().unsubscribe()
        self._holding.settle()

    def assignment(self) -> set[Partition]:
        """As ``kafka.KafkaConsumer.assignment``: the partitions that are read, none of mode None."""
        return self._holding.held()

    # Where to read

    def pause(self, *partitions: Partition) -> None:
        """As ``kafka.KafkaConsumer.pause``."""
        super().pause(*partitions)
        self._holding.paused_by_application(partitions)

    def resume(self, *partitions: Partition) -> None:
        """As ``kafka.KafkaConsumer.resume``; partitions in mode None go on when they are readable again."""
        super().resume(*self._holding.resumed_by_application(partitions))

    def paused(self) -> set[Partition]:
        """As ``kafka.KafkaConsumer.paused``."""
        paused: set[Partition] = super().paused()
        return paused - self._holding.hidden

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """As ``kafka.KafkaConsumer.seek_to_beginning``; without arguments, of all partitions that are read."""
        super().seek_to_beginning(*(partitions or self._all_held()))

    def seek_to_end(self, *partitions: Partition) -> None:
        """As ``kafka.KafkaConsumer.seek_to_end``; without arguments, of all partitions that are read."""
        super().seek_to_end(*(partitions or self._all_held()))

    def _all_held(self) -> set[Partition]:
        held = self._holding.held()
        if not held:
            raise ValueError("No partitions are currently assigned")
        return held

    def position(self, partition: Partition, timeout_ms: float | None = None) -> Any:
        """As ``kafka.KafkaConsumer.position``: waits where the start cannot be had yet (the leader is away, say)."""
        wait_ms = self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        deadline_s = time.monotonic() + wait_ms / 1000
        while True:
            left_s = max(0.0, deadline_s - time.monotonic())
            position = super().position(partition, None if timeout_ms is None else left_s * 1000)
            if left_s == 0 or partition not in self._subscription.missing_fetch_positions():
                return position
            time.sleep(min(left_s, self._backoff_s))  # kafka-python's own pause before it asks again

    # Life

    @wraps(_gateway.KafkaConsumer.close, assigned=(), updated=())
    def close(self, *args: Any, **kwargs: Any) -> None:
        """As ``kafka.KafkaConsumer.close``; the share of the views is given back first."""
        self._share.release()
        super().close(*args, **kwargs)

    def modeaware_stats(self) -> dict[str, Any]:
        """Figures that cost nothing per record.

        Returns:
            ``state`` (``waiting`` for the first view, or ``direct``), ``assigned`` (partitions held), ``hidden``
            (given to this consumer and not held, being in mode None), ``rejoins`` (rebalances asked for), and
            ``views``: what the shared source reports (``view_age_ms``, ``stale``, ...).
        """
        return {
            "state": "direct" if self._first_view.over or self._views.ready else "waiting",
            "assigned": len(self._holding.held()),
            "hidden": len(self._holding.hidden),
            "rejoins": self._rejoins,
            "views": self._views.stats(),
        }

    # Work of the polling thread

    def _note(self, changed: Mapping[str, TopicView]) -> None:
        """Leave a note for the polling thread (called by the source's thread)."""
        for topic, view in changed.items():
            self._starts.remember(view, TopicPartition)
            self._changed.add(topic)
        self._noted = True

    def _poll_once(self, timer: Any, max_records: int, update_offsets: bool = True) -> Any:
        if not self._first_view.over and not self._first_view.arrived(min(timer.timeout_ms / 1000, _VIEW_POLL_S)):
            return {}
        if self._noted:
            self._commit_idle()  # what a rebalance may take
            self._rejoin_if_stale()
        if self._grouped and self._coordinator.rejoin_needed:
            self._verify(self._subscription.subscription)  # before it joins, and perhaps deals
        if self._coordinator.rejoining:
            # kafka-python 3.0.12 forgets a join that a short poll began because the metadata had changed: dealing makes
            # it believe that it need not join, it never takes its assignment, and its heartbeats stay off.
            self._coordinator.request_rejoin()
        return super()._poll_once(timer, max_records, update_offsets=update_offsets)

    def _verify(self, topics: Iterable[str]) -> None:
        """Let go the views of topics that were deleted, and created again under their names (invariant I8)."""
        self._views.verify(topics, VERIFY_TIMEOUT_S)

    def _rejoin_if_stale(self) -> None:
        """Have the group dealt again, if this member leads it and other partitions are readable than it dealt by."""
        coordinator = self._coordinator
        if not coordinator._is_leader or coordinator.rejoin_needed:
            return
        # The others may have dealt in earlier generations, by another protocol.
        assignor = coordinator._assignors.get(coordinator._generation.protocol)
        if isinstance(assignor, ReadableAssignor) and assignor.stale():
            log.info("%s: asking for a rebalance, the readable partitions have changed", self.config["group_id"])
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
            asked_s = time.monotonic()
            if asked_s < self._find_again_s:
                return False
            self._verify(partition.topic for partition in missing)
            try:
                starts, unknown = self._starts.find(missing, Stock(self), timeout_ms, group=self._has_group)
            except KafkaTimeoutError:
                return False
            for partition, start in starts.items():
                self._subscription.seek(partition, start)
        self._align(new=bool(missing))
        if unknown:
            took_s = time.monotonic() - asked_s  # and as long again the others are read
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
        if not self._noted and not new:
            return
        self._noted = False
        self._rejoin_if_stale()  # a note that came since the last look is taken here
        gone, back = self._holding.changes()
        listener = self._subscription.rebalance_listener if self._grouped else None
        if not isinstance(listener, HeldListener) or not (gone or back):
            self._holding.settle()
        else:
            self._change(listener, gone, back)
        self._commit_idle()

    def _commit_idle(self) -> None:
        if self._grouped and not self._idle.commit():
            self._noted = True

    @property
    def _grouped(self) -> bool:
        return self._has_group and bool(self._subscription.partitions_auto_assigned())

    def _change(self, listener: HeldListener, gone: set[Partition], back: set[Partition]) -> None:
        log.info("%s: letting go %s, taking up %s", self.config["group_id"], sorted(gone), sorted(back))
        whole = not listener.incremental
        try:
            if gone or whole:
                self._tell(listener, "on_partitions_revoked", self._holding.held() if whole else gone)
        finally:
            # Whatever the listener raises, what is held is right afterwards.
            self._holding.settle()
        if back or whole:
            self._tell(listener, "on_partitions_assigned", self._holding.held() if whole else back)

    def _tell(self, listener: HeldListener, method: str, partitions: set[Partition]) -> None:
        if listener.inner is None:
            return
        try:
            self._net.run(listener.tell, method, partitions)  # in kafka-python's thread, as in a rebalance
        except Exception as error:
            raise KafkaError("User rebalance callback throws an error") from error
