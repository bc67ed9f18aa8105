"""kafka-python's KafkaConsumer, reading the partitions that are not in mode None."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

from modeaware.clients.following import ClientErrors, FirstView, ViewShare, acquired
from modeaware.clients.member import Member, Traits
from modeaware.clients.member_views import MemberViews
from modeaware.clients.named import NamedTopics
from modeaware.clients.partition import Committing
from modeaware.clients.settings import split_settings
from modeaware.clients.starts import Starts
from modeaware.clients.subscription import Reader
from modeaware.errors import ConfigError
from modeaware.kafka_python import _gateway
from modeaware.kafka_python._gateway import RebalanceProtocol, TopicPartition
from modeaware.kafka_python.assignors import aware_strategy
from modeaware.kafka_python.errors import FirstViewTimeout
from modeaware.kafka_python.group import Membership
from modeaware.kafka_python.joins import keep_joins
from modeaware.kafka_python.offsets import Offsets, Partition, Parts
from modeaware.kafka_python.topics import Topics, as_name, as_text, matches
from modeaware.topic_view import TopicView

_VIEW_POLL_S = 0.5


class KafkaConsumer(_gateway.KafkaConsumer):  # type: ignore[misc,unused-ignore]  # untyped
    """``kafka.KafkaConsumer`` with the same settings, methods and listeners, aware of partition modes.

    * Partitions in mode None are neither read nor shown to the application. When such a partition is readable again,
      it is read without a rebalance, by the member to which the group gave it.
    * kafka-python's assignors (``partition_assignment_strategy``) are replaced by ours
      (:mod:`modeaware.kafka_python.assignors`), under the same protocol names. The group's leader requests a rebalance
      if the readable partitions have changed since it computed the assignment.
    * A new topic is read after the old topic that it replaces (``modeaware_on_replace``).
    * ``auto_offset_reset`` is resolved to an offset once, at the assignment.
    * Without a first view, ``poll`` joins no group and returns nothing. After ``modeaware_view_timeout_ms``,
      ``modeaware_on_unknown`` decides: ``block`` keeps waiting, ``writable`` reads every partition, ``error`` raises.

    The polling thread applies changes of modes at the next ``poll``, and during a long ``poll`` within about
    ``fetch_max_wait_ms``. Settings that begin with ``modeaware_`` are ours.

    Thread-safety: kafka-python's (one thread uses a consumer).

    Raises:
        ConfigError: an unknown or bad ``modeaware_`` setting, or a connection setting that cannot be translated for
            librdkafka, which reads the views.
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
            parts = Parts(self._coordinator, self._subscription, self._fetcher, self._cluster, self._net)
            creates = self.config["allow_auto_create_topics"]
            self._topics = Topics(parts, views, self.config["group_id"] or "", creates=creates)
            self._topics.create(False)  # until the state of the topics is known
            if topics:
                super().subscribe(topics)
            self._views = views
            self._first_view = FirstView(
                settings.config, views.wait_ready, views, ClientErrors(timeout=FirstViewTimeout)
            )
            self._named = NamedTopics(views, self._first_view)
            self._starts = Starts(views, str(self.config["auto_offset_reset"]), self._topics.group_id)
            self._membership = self._make_membership(parts, settings.config.on_replace)
            keep_joins(self._coordinator, begins=self._membership.join_begins)
            self._in_position = False
            self._backoff_s: float = self.config["retry_backoff_ms"] / 1000
            if topics:
                self._subscription.rebalance_listener = self._membership
                self._membership.subscribe(topics, None)
            _gateway.add_listener(self._cluster, lambda _: views.refresh_soon())
        self._share = ViewShare(self, views, self._note)

    def _make_membership(self, parts: Parts, on_replace: str) -> Membership:
        in_group = self.config["group_id"] is not None and self.config["api_version"] >= (0, 9)
        incremental = not in_group or self._coordinator._rebalance_protocol == RebalanceProtocol.COOPERATIVE
        auto_commit = bool(self._coordinator.config["enable_auto_commit"])
        member = Member(
            Reader(self._topics.group_id if in_group else "", (), matches, on_replace),
            Traits(incremental=incremental, keeps_pauses=False, waits_for_starts=True),
            Committing(automatic=auto_commit),
        )
        return Membership(
            parts,
            member,
            self._starts,
            MemberViews(member, self._views, self._topics.group_id),
            self._topics,
            in_group=in_group,
            auto_commit=auto_commit,
        )

    # Subscription and assignment

    def subscribe(
        self, topics: Sequence[str] = (), pattern: str | re.Pattern[str] | None = None, listener: Any = None
    ) -> None:
        """As ``kafka.KafkaConsumer.subscribe``. The listener gets only the partitions that the consumer holds.

        A change of modes within a generation is shown to the listener. Under an eager protocol, it is shown as a
        rebalance: all held partitions are revoked, then all that the consumer still holds are assigned. Under a
        cooperative protocol, only changes are shown.
        """
        kinds = (_gateway.ConsumerRebalanceListener, _gateway.AsyncConsumerRebalanceListener)
        if listener and not isinstance(listener, kinds):
            super().subscribe(topics=topics, pattern=pattern, listener=listener)  # kafka-python refuses the call
        text = None if pattern is None else as_text(pattern)
        super().subscribe(topics=topics, pattern=text, listener=self._membership)
        self._membership.subscribe(topics if text is None else (as_name(text),), listener or None)

    def subscription(self) -> set[str] | None:
        """As ``kafka.KafkaConsumer.subscription``: the topics that the application has named, or that its pattern
        matches."""
        subscription: set[str] | None = super().subscription()
        if subscription is None or self._subscription.subscribed_pattern is None:
            return subscription and set(self._topics.names)
        return {topic for topic in subscription if matches(self._topics.names[0], topic)}

    def assign(self, partitions: Sequence[Partition]) -> None:
        """As ``kafka.KafkaConsumer.assign``; partitions in mode None wait until they are readable again."""
        super().assign(partitions)
        if partitions:
            self._topics.create(True)
            self._membership.assign(partitions)

    def unsubscribe(self) -> None:
        """As ``kafka.KafkaConsumer.unsubscribe``."""
        super().unsubscribe()
        self._topics.forget_all()
        self._membership.unsubscribe()

    def assignment(self) -> set[Partition]:
        """As ``kafka.KafkaConsumer.assignment``: the partitions that are read, so none in mode None."""
        return self._membership.held()

    # Where to read

    def pause(self, *partitions: Partition) -> None:
        """As ``kafka.KafkaConsumer.pause``."""
        super().pause(*partitions)
        self._membership.pause(partitions)

    def resume(self, *partitions: Partition) -> None:
        """As ``kafka.KafkaConsumer.resume``; partitions in mode None are resumed when they are readable again."""
        super().resume(*self._membership.resume(partitions))

    def paused(self) -> set[Partition]:
        """As ``kafka.KafkaConsumer.paused``."""
        return self._membership.paused()

    def seek(self, partition: Partition, offset: int) -> None:
        """As ``kafka.KafkaConsumer.seek``."""
        super().seek(partition, offset)
        self._membership.sought([partition], offset)

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """As ``kafka.KafkaConsumer.seek_to_beginning``. Without arguments, seek in all partitions that are read."""
        sought = partitions or tuple(self._all_held())
        super().seek_to_beginning(*sought)
        self._membership.sought(sought)

    def seek_to_end(self, *partitions: Partition) -> None:
        """As ``kafka.KafkaConsumer.seek_to_end``. Without arguments, seek in all partitions that are read."""
        sought = partitions or tuple(self._all_held())
        super().seek_to_end(*sought)
        self._membership.sought(sought)

    def _all_held(self) -> set[Partition]:
        held = self._membership.held()
        if not held:
            raise ValueError("No partitions are currently assigned")
        return held

    def position(self, partition: Partition, timeout_ms: float | None = None) -> Any:
        """As ``kafka.KafkaConsumer.position``. Waits while the start is unknown, for example without a leader."""
        wait_ms = self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        deadline_s = time.monotonic() + wait_ms / 1000
        while True:
            left_s = max(0.0, deadline_s - time.monotonic())
            self._in_position = True  # this call may run in a rebalance listener; only polls change what is held
            try:
                position = super().position(partition, None if timeout_ms is None else left_s * 1000)
            finally:
                self._in_position = False
            if left_s == 0 or partition not in self._subscription.missing_fetch_positions():
                return position
            time.sleep(min(left_s, self._backoff_s))  # kafka-python's own pause before a retry

    # Calls that name topics, and read nothing

    def writable_partitions(self, topic: str) -> tuple[int, ...]:
        """See :meth:`modeaware.Producer.writable_partitions`; empty if the cluster has no such topic.

        Raises:
            ModeSourceError, FirstViewTimeout: no view of the modes yet; ``modeaware_on_unknown`` decides which.
        """
        stock = super().partitions_for_topic
        return self._named.writable_partitions(topic, lambda written: len(stock(written)))

    def partitions_for_topic(self, topic: str) -> set[int]:
        """As ``kafka.KafkaConsumer.partitions_for_topic``, including partitions in mode None.

        The name of a replaced and deleted topic stands for the topic that the name points to, here and in
        :meth:`committed`, :meth:`beginning_offsets`, :meth:`end_offsets` and :meth:`offsets_for_times`.
        """
        partitions: set[int] = super().partitions_for_topic(self._named.present(topic))
        return partitions

    def committed(self, partition: Partition, metadata: bool = False, timeout_ms: float | None = None) -> Any:
        """As ``kafka.KafkaConsumer.committed``; see :meth:`partitions_for_topic`."""
        return super().committed(self._led(partition), metadata=metadata, timeout_ms=timeout_ms)

    def beginning_offsets(self, partitions: Iterable[Partition], timeout_ms: float | None = None) -> Offsets:
        """As ``kafka.KafkaConsumer.beginning_offsets``; see :meth:`partitions_for_topic`."""
        led = {partition: self._led(partition) for partition in partitions}
        return _under_names(led, super().beginning_offsets([*led.values()], timeout_ms))

    def end_offsets(self, partitions: Iterable[Partition], timeout_ms: float | None = None) -> Offsets:
        """As ``kafka.KafkaConsumer.end_offsets``; see :meth:`partitions_for_topic`."""
        led = {partition: self._led(partition) for partition in partitions}
        return _under_names(led, super().end_offsets([*led.values()], timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[Partition, int], timeout_ms: float | None = None
    ) -> dict[Partition, Any]:
        """As ``kafka.KafkaConsumer.offsets_for_times``; see :meth:`partitions_for_topic`."""
        led = {partition: self._led(partition) for partition in timestamps}
        asked = {led[partition]: timestamp for partition, timestamp in timestamps.items()}
        return _under_names(led, super().offsets_for_times(asked, timeout_ms))

    def _led(self, partition: Partition) -> Partition:
        if not isinstance(partition, TopicPartition):
            return partition  # kafka-python refuses the call
        topic = self._named.present(partition.topic)
        return partition if topic == partition.topic else TopicPartition(topic, partition.partition)

    # Life

    def group_metadata(self) -> Any:
        """As ``kafka.KafkaConsumer.group_metadata``, to commit with transactions.

        After this call, this package makes commits of its own on two kinds of partitions alone: those without a commit
        of the group, and those of an old topic whose end the group has committed.
        """
        metadata = super().group_metadata()
        self._membership.commits_with_transactions(metadata)
        return metadata

    @wraps(_gateway.KafkaConsumer.close, assigned=(), updated=())
    def close(self, *args: Any, **kwargs: Any) -> None:
        """As ``kafka.KafkaConsumer.close``; the share of the views is released first."""
        self._share.release()
        super().close(*args, **kwargs)

    def modeaware_stats(self) -> dict[str, Any]:
        """As :meth:`modeaware.Consumer.modeaware_stats`, without ``in_doubt``; ``state`` is ``waiting`` or
        ``direct``."""
        return {
            "state": "direct" if self._first_view.over or self._views.ready else "waiting",
            **self._membership.views.stats(),
            "rejoins": self._membership.rejoins,
            "views": self._views.stats(),
        }

    # Work of the polling thread

    def _note(self, changed: Mapping[str, TopicView]) -> None:
        """Note changed views for the polling thread (called in any thread)."""
        for topic, view in changed.items():
            self._starts.remember(view)
            self._membership.changed.add(topic)
        self._membership.noted = True

    def _poll_once(self, timer: Any, max_records: int, update_offsets: bool = True) -> Any:
        if not self._first_view.over and not self._first_view.arrived(min(timer.timeout_ms / 1000, _VIEW_POLL_S)):
            return {}
        self._membership.apply(timer.timeout_ms)
        self._topics.forget_deleted()
        if self._membership.in_group and self._topics.names and self._coordinator.rejoin_needed:
            self._membership.views.verify(self._subscription.subscription)  # before a join, and perhaps an assignment
        if self._coordinator.rejoining:
            # kafka-python 3.0.12 forgets a join that a short poll began because of new metadata. From the assignor's
            # state it concludes that no join is needed. Then it neither takes its assignment nor sends heartbeats.
            self._coordinator.request_rejoin()
        return super()._poll_once(timer, max_records, update_offsets=update_offsets)

    def _refresh_committed_offsets(self, timeout_ms: float | None = None) -> bool:
        # kafka-python calls this in the polling thread: after a rebalance, before a fetch, and when the application
        # requests a position. An application may do that in its listener, where the held partitions must not change.
        if not self._in_position:
            self._membership.apply(timeout_ms or 0.0)
        elif self._subscription.partitions_auto_assigned():
            self._membership.place_missing(timeout_ms)
        if self._subscription.partitions_auto_assigned():
            all_known: bool = self._subscription.has_all_fetch_positions()
            return all_known
        done: bool = super()._refresh_committed_offsets(timeout_ms=timeout_ms)
        return done


def _under_names(led: Mapping[Partition, Partition], answers: Mapping[Partition, Any]) -> dict[Partition, Any]:
    """Return ``answers`` with the application's own partitions as keys; ``led`` has the requested partition of each."""
    return {given: answers[asked] for given, asked in led.items() if asked in answers}
