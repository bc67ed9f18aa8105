"""confluent_kafka's Consumer, reading the partitions that are not in mode None.

When views change, :class:`~modeaware.confluent.group.Membership` changes the assignment within the next ``poll`` or
``consume`` (:class:`~modeaware.confluent.retarget.PollHook`). Without such work, both methods are librdkafka's own;
:class:`Consumer` lists the exceptions.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from modeaware import librdkafka
from modeaware.clients.following import ClientErrors, FirstView, ViewShare
from modeaware.clients.named import NamedTopics
from modeaware.clients.settings import given_conf
from modeaware.clients.starts import Starts
from modeaware.clients.taken_metadata import metadata_taken
from modeaware.config import split_client_config, with_process_settings
from modeaware.confluent import named
from modeaware.confluent.commits import CommitNotes
from modeaware.confluent.errors import FirstViewTimeout, StaleHints
from modeaware.confluent.group import Callback, Membership, Subscription, member_of
from modeaware.confluent.names import LogicalNames, physical_topic
from modeaware.confluent.offsets import NonMember
from modeaware.confluent.own_commits import OwnCommits
from modeaware.confluent.ownership import GroupConf, GroupDescriber, Ownership
from modeaware.confluent.retarget import PollHook, Stock, following, idle_stats, stock_method, weakly
from modeaware.confluent.route_table import partition_count
from modeaware.confluent.statistics import stats_settings
from modeaware.librdkafka import ClusterMetadata, Message, TopicPartition
from modeaware.topic_view import TopicView
from modeaware.views import registry
from modeaware.wire.capabilities import IDENTITY

K = TypeVar("K")
V = TypeVar("V")

_VIEW_POLL_S = 0.1


class _Slots(librdkafka.Consumer):
    """Has the slots for the targets of :func:`~modeaware.confluent.retarget.following` methods."""

    __slots__ = ("_following_commit", "_following_consume", "_following_poll", "_following_store_offsets")
    _following_poll: Callable[[Any, float], Message | None]
    _following_consume: Callable[[Any, int, float], list[Message]]


class Consumer(_Slots):
    """``confluent_kafka.Consumer``, aware of partition modes: same constructor forms, methods and callbacks.

    Partitions in mode None are neither read nor shown until they are readable again. A new topic is read after the
    old topic that it replaces (``modeaware.on.replace``). Settings that start with ``modeaware.`` are ours
    (:class:`modeaware.config.ClientConfig`). ``docs/consumer-groups.md`` describes the effect of retired partitions
    under each assignment strategy.

    * Without a first view of the modes, ``subscribe()`` does not block, and takes effect at a later ``poll()``.
      ``poll`` and ``consume`` wait for the view, for their timeout. After ``modeaware.view.timeout.ms``,
      ``modeaware.on.unknown`` decides: ``block`` continues to wait (``poll`` returns None), ``writable`` reads every
      partition, and ``error`` raises :class:`~modeaware.errors.ViewTimeout` from ``poll``.
    * ``auto.offset.reset`` is resolved to an offset once, at the assignment.
    * While no work waits, ``poll`` and ``consume`` are librdkafka's own. There are three exceptions: messages to rename
      (``modeaware.topic.names``); errors about topics that the application has not named, which are dropped; and
      ``enable.partition.eof`` while a topic has retired partitions. Then the end of each partition in mode None is
      reported only once.
    * ``statistics.interval.ms`` is set to 1000 at most, because the callback for statistics reaches a thread inside an
      endless ``poll()``. The application's ``stats_cb`` is still called at its own interval.

    Thread-safety: confluent_kafka's (one thread polls).

    Raises:
        ConfigError: an unknown or bad ``modeaware.`` setting.
        KafkaException: as from confluent_kafka.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        config, rest = split_client_config(with_process_settings(given_conf(args, kwargs)))
        stats = idle_stats()
        hints = StaleHints()
        watched = {**IDENTITY, **rest, **stats_settings(rest, stats.call)}
        commits = OwnCommits(rest)
        super().__init__(hints.listening(commits.listening(watched)))
        self._views = views = hints.views = registry.acquire(rest, config)
        self._count = partition_count(self, config.view_timeout_ms / 1000)
        self._first_view = FirstView(config, views.wait_ready, views, ClientErrors(timeout=FirstViewTimeout))
        self._named = NamedTopics(views, self._first_view)
        self._stock = stock = Stock(Consumer, self)
        group = GroupConf.of(rest)
        starts = Starts(views, group.offset_reset, group.group_id)
        non_member = NonMember(rest, group.group_id)
        poll, consume, commit, store_offsets = (
            stock_method(Consumer, type(self), name) for name in ("poll", "consume", "commit", "store_offsets")
        )
        self._hook = hook = PollHook(
            poll, consume, weakly(self._act), weakly(self._due_s), stats, weakly(self._finish),
            may_wait=weakly(self._may_wait), give_back=weakly(self._give_back),
        )  # fmt: skip
        member = member_of(group, config)
        self._notes = CommitNotes(commit, store_offsets, member, stock)
        self._names = LogicalNames(commit, store_offsets, renames=config.topic_names == "logical")
        ownership = Ownership(stock, group, views, GroupDescriber(rest, group.group_id))
        self._membership = Membership(
            stock, weakref.ref(self), group, member, ownership, starts, non_member, commits, views, hook.call
        )
        self._pending = False  # a subscription waits for the first view
        self._view_due_s = 0.0
        self._following_poll, self._following_consume = hook.poll.call, hook.consume.call
        self._following_commit, self._following_store_offsets = self._names.commit.call, self._names.store_offsets.call
        self._share = ViewShare(self, views, self._note)

    # Reading

    @following
    def poll(self, timeout: float = -1) -> Message | None:
        """As ``confluent_kafka.Consumer.poll``; pending changes of the assignment are applied first."""
        return self._following_poll(self, timeout)

    @following
    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As ``confluent_kafka.Consumer.consume``; pending changes of the assignment are applied first."""
        return self._following_consume(self, num_messages, timeout)

    @following
    def commit(self, *args: Any, **kwargs: Any) -> Any:
        """As ``confluent_kafka.Consumer.commit``. With ``message``, commit on the topic that contains its record.

        Raises:
            KafkaException: as from the stock method. ``_INVALID_ARG`` also means that a topic in ``offsets`` is
                ambiguous because of ``modeaware.topic.names=logical``. Then nothing is committed.
        """
        return self._names.commit.call(self, *args, **kwargs)

    @following
    def store_offsets(self, *args: Any, **kwargs: Any) -> None:
        """As ``confluent_kafka.Consumer.store_offsets``, with messages and errors as in :meth:`commit`."""
        self._names.store_offsets.call(self, *args, **kwargs)

    def logical_topic(self, message: Message) -> str | None:
        """Return the subscribed topic in whose place this consumer reads the topic of ``message``.

        The result does not depend on ``modeaware.topic.names``. The result is the message's own topic if the
        application subscribes to it by name, or if it has replaced no other topic. If a pattern matches several names
        of one chain of replaced topics, the result is the earliest of these names.
        """
        return self._names.logical(message)

    def physical_topic(self, message: Message) -> str | None:
        """Return the topic that contains the record of ``message``, whatever ``modeaware.topic.names`` is."""
        return physical_topic(message)

    # Subscription and assignment

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """As ``confluent_kafka.Consumer.subscribe``. The callbacks get the partitions that the consumer holds.

        Under an eager protocol, a change of modes between two rebalances is shown like a rebalance: ``on_revoke`` gets
        all partitions held before, then ``on_assign`` gets all partitions held afterwards.
        """
        _check_subscription(topics, on_assign, on_revoke, on_lost)
        self._membership.subscription = Subscription(tuple(topics), on_assign, on_revoke, on_lost)
        self._names.forget()
        if not self._views.ready:
            self._stock.memberid()  # raises if the consumer is closed
            self._pending = True
            self._first_view.begin()
            self._view_due_s = time.monotonic()
            self._hook.call()
        else:
            self._pending = False
            self._membership.join()
            self._finish_what_is_needed()

    def unsubscribe(self) -> None:
        """As ``confluent_kafka.Consumer.unsubscribe``."""
        self._pending = False
        super().unsubscribe()
        self._membership.leave()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """As ``confluent_kafka.Consumer.assign``; partitions in mode None wait until they are readable again."""
        self._membership.assign(partitions)
        self._finish_what_is_needed()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """As ``confluent_kafka.Consumer.incremental_assign``; partitions in mode None wait until they are readable."""
        self._membership.assign(partitions, incremental=True)
        self._finish_what_is_needed()

    def unassign(self) -> None:
        """As ``confluent_kafka.Consumer.unassign``."""
        self._membership.unassign()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """As ``confluent_kafka.Consumer.incremental_unassign``."""
        self._membership.incremental_unassign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """As ``confluent_kafka.Consumer.assignment``: the partitions that are read, so none in mode None."""
        return self._membership.visible(super().assignment())

    def pause(self, partitions: list[TopicPartition]) -> None:
        """As ``confluent_kafka.Consumer.pause``."""
        self._membership.pause(partitions)
        self._apply_soon()

    def resume(self, partitions: list[TopicPartition]) -> None:
        """As ``confluent_kafka.Consumer.resume``; partitions in mode None are resumed when they are readable again."""
        self._membership.resume(partitions)
        self._apply_soon()

    def seek(self, partition: TopicPartition) -> None:
        """As ``confluent_kafka.Consumer.seek``; an ambiguous topic is refused as in :meth:`commit`."""
        self._names.refuse([partition])
        self._membership.seek(partition)
        self._apply_soon()

    def consumer_group_metadata(self) -> Any:
        """As ``confluent_kafka.Consumer.consumer_group_metadata``, to commit with transactions.

        After this call, this package makes commits of its own on two kinds of partitions alone: those without a commit
        of the group, and those of an old topic whose end the group has committed.
        """
        metadata = super().consumer_group_metadata()
        self._membership.member.commits_with_transactions()
        metadata_taken(metadata, self._notes)
        return metadata

    # Calls that name topics, and read nothing

    def writable_partitions(self, topic: str) -> tuple[int, ...]:
        """See :meth:`modeaware.Producer.writable_partitions`.

        Raises:
            ModeSourceError, modeaware.confluent.errors.FirstViewTimeout: no view of the modes yet;
                ``modeaware.on.unknown`` decides which.
            KafkaException: as from that method.
        """
        return self._named.writable_partitions(topic, self._count)

    def list_topics(self, *args: Any, **kwargs: Any) -> ClusterMetadata:
        """As ``confluent_kafka.Consumer.list_topics``: partitions as the brokers have them, also those in mode None.

        The name of a replaced and deleted topic stands for the topic that the name points to, here and in
        :meth:`committed`, :meth:`offsets_for_times` and :meth:`get_watermark_offsets`.
        """
        return named.list_topics(super().list_topics, self._named.present, *args, **kwargs)

    def committed(self, partitions: list[TopicPartition], *args: Any, **kwargs: Any) -> list[TopicPartition]:
        """As ``confluent_kafka.Consumer.committed``; see :meth:`list_topics`."""
        return named.offsets(super().committed, self._named.present, partitions, *args, **kwargs)

    def offsets_for_times(self, partitions: list[TopicPartition], *args: Any, **kwargs: Any) -> list[TopicPartition]:
        """As ``confluent_kafka.Consumer.offsets_for_times``; see :meth:`list_topics`."""
        return named.offsets(super().offsets_for_times, self._named.present, partitions, *args, **kwargs)

    def get_watermark_offsets(self, partition: TopicPartition, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """As ``confluent_kafka.Consumer.get_watermark_offsets``; see :meth:`list_topics`."""
        options = {**dict(zip(("timeout",), args, strict=False)), **kwargs}
        [asked] = named.led(self._named.present, [partition], options)
        return super().get_watermark_offsets(asked, *args, **kwargs)

    # Life

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As ``confluent_kafka.Consumer.set_sasl_credentials``; the auxiliary clients use them as well."""
        super().set_sasl_credentials(username, password)
        self._views.set_sasl_credentials(username, password)
        self._membership.set_sasl_credentials(username, password)

    def close(self) -> None:
        """As ``confluent_kafka.Consumer.close``; the share of the views is released first."""
        if not self._hook.stopped:
            self._pending = False
            self._membership.before_close()
            self._share.release()
            self._hook.stop()
            self._membership.close()
            if assigned := super().assignment():
                # rd_kafka_consumer_close drops fetched records, but commits the offsets of control records behind the
                # dropped ones. Without the pause, the group would skip the dropped records of a transactional topic.
                self._stock.pause(assigned)
        super().close()

    def __exit__(self, *exception: Any) -> Any:
        self.close()

    def modeaware_stats(self) -> dict[str, Any]:
        """Return figures that cost nothing per record.

        Returns:
            ``state`` (``waiting`` for the first view, ``direct`` = librdkafka's own ``poll``, ``acting`` = the next
            poll runs code of this package), ``assigned`` (partitions held), ``hidden`` (partitions given to this
            consumer and not held: for example in mode None, behind a gate, or perhaps owned by another member),
            ``in_doubt`` (topics of which nothing is held until the group can be described), ``rejoins`` (rebalances
            requested), ``gates`` (one for each replaced topic: ``topic``, ``new_topic``, ``state`` = ``closed`` or
            ``open``), and ``views``: the report of the shared source (``view_age_ms``, ``stale``, ...).
        """
        state = "direct" if self._hook.direct else "acting"
        return {
            "state": "waiting" if self._pending else state,
            **self._membership.stats(),
            "views": self._views.stats(),
        }

    # Work of the polling thread

    def _note(self, changed: Mapping[str, TopicView]) -> None:
        """Note changed views for the polling thread, which alone decides (called in any thread)."""
        concerned = [view for view in changed.values() if self._concerns(view)]
        for view in concerned:
            self._membership.note(view)
        if concerned or self._pending:
            self._hook.call()

    def _finish_what_is_needed(self) -> None:
        renames = self._names.follow(self._membership.member.reading.logical)
        # With sees_absences, librdkafka's queue may contain an event about a topic that the application has not named.
        finishes = renames or self._membership.sees_absences
        self._hook.finish_all(finishes or (self._membership.ends.wanted and self._may_end_hidden()))
        member = self._membership.member
        may_drop = member.may_drop or member.has_dropped
        self._names.put_over(*self._notes.methods(noting=self._membership.watches, may_drop=may_drop))

    def _may_end_hidden(self) -> bool:
        """Return whether librdkafka may report the end of a partition that is hidden or will be hidden. Even the poll
        that assigns partitions may return an end from before the assignment."""
        return any(not view.all_writable and self._concerns(view) for view in self._views.views().values())

    def _concerns(self, view: TopicView) -> bool:
        return self._membership.concerns(
            {view.topic} if view.replaced_by is None else {view.topic, view.replaced_by.topic}
        )

    def _apply_soon(self) -> None:
        if self._membership.watches:
            self._hook.call()

    def _act(self) -> None:
        if not self._pending:
            self._membership.apply(inside=self._hook.inside or self._hook.polling, taken=self._hook.taken)
            self._finish_what_is_needed()
            return
        self._view_due_s = time.monotonic() + _VIEW_POLL_S
        if self._first_view.arrived(0.0):
            self._pending = False
            self._membership.join()
            self._finish_what_is_needed()

    def _finish(self, result: Message | list[Message] | None) -> bool:
        """Rename records, and drop events about hidden topics. Return whether that leaves nothing of the result."""
        if result is None:
            return False
        # An assignment within the call that returned the result may have put later views in force.
        self._names.follow(self._membership.member.reading.logical)
        self._names.rename(result)
        if self._membership.ends.wanted:
            self._membership.ends.take(result if isinstance(result, list) else [result])
        if not self._membership.sees_absences:
            return False
        if not isinstance(result, list):
            return self._membership.is_absence(result)
        count = len(result)
        result[:] = [message for message in result if not self._membership.is_absence(message)]
        return not result and count > 0

    def _may_wait(self, taken: list[Message]) -> bool:
        return not any(map(self._membership.is_ending, {physical_topic(message) for message in taken}))

    def _give_back(self, taken: list[Message]) -> None:
        self._membership.take_back(taken)

    def _due_s(self) -> float | None:
        return self._view_due_s if self._pending else self._membership.due_s()


def _check_subscription(topics: Any, *callbacks: Any) -> None:
    """Raise confluent_kafka's errors for bad arguments at once, even if the subscription itself has to wait."""
    if not isinstance(topics, list):
        raise TypeError("expected list of topic unicode strings")
    if not all(isinstance(topic, str) for topic in topics):
        raise TypeError("expected list of unicode strings")
    for callback in callbacks:
        if callback is not None and not callable(callback):
            raise TypeError("on_assign, on_revoke and on_lost expect a callable")


class DeserializingConsumer(  # type: ignore[misc] # our methods take any arguments, and pass them on
    librdkafka.DeserializingConsumer[K, V], Consumer, Generic[K, V]
):
    """confluent_kafka's ``DeserializingConsumer`` with the same settings; it polls through ``modeaware.Consumer``."""
