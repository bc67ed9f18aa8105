"""confluent_kafka's AdminClient with KIP-694's DeletePartitions.

These calls need the extra ``controller``, because they import kafka-python: requests to our controller; creations and
growths with a minimum of replicas (KIP-409); growths in the form of a mapping (KIP-195); and reassignments.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from modeaware import librdkafka, os_threads
from modeaware.admin.new_topics import CreationResult, TopicReplacement, check_replacement, minimum_of
from modeaware.callouts import InnerLock, get_logger
from modeaware.chain import present_topic
from modeaware.clients.following import abandon
from modeaware.config import split_client_config, with_process_settings
from modeaware.confluent import named
from modeaware.confluent.arguments import (
    broker_ids,
    check_delay_ms,
    check_numbers,
    check_wanted,
    checked_keys,
    checked_rules,
    deadline_of,
    growth_command,
    is_validation,
    options_within,
    pair_of,
    pairs,
    refuse_duplicates,
    refused_aliases,
    split_growths,
)
from modeaware.confluent.controller_calls import REQUEST_TIMEOUT_S, ControllerCalls, DeletePartitions
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, ModeSourceError, RequestRefused
from modeaware.librdkafka import ClusterMetadata, KafkaError, KafkaException, NewPartitions, NewTopic, TopicPartition
from modeaware.lifecycle.commands import AlterGroupRulesCommand, ReplaceTopicCommand
from modeaware.modelog.group_rules import GroupRule
from modeaware.topic_view import TopicView
from modeaware.wire.capabilities import IDENTITY
from modeaware.wire.retries import Deadline, Retrying, RetryPolicy
from modeaware.wire.security import bootstrap_servers

if TYPE_CHECKING:
    from modeaware.admin.creation import Creation, Placement
    from modeaware.admin.reassignments import PartitionReassignment
    from modeaware.views.source import Views
    from modeaware.wire.brokers import Brokers
    from modeaware.wire.messages import TopicResult

log = get_logger(__name__)

_OPTIONS = {"operation_timeout", "request_timeout", "validate_only"}
_BROKER_TIMEOUT_S = 4.0
_Key = TypeVar("_Key", TopicPartition, tuple[str, int])
_T = TypeVar("_T")


class AdminClient(librdkafka.AdminClient):
    """A drop-in for ``confluent_kafka.admin.AdminClient``: same constructor and methods, with additional ones.

    The constructor does not block. The first call that needs the views acquires them. All methods may be called from
    any thread. Commands to the controller are sent to the address in the controller's claim in the mode log.

    Args:
        conf: librdkafka's settings and ours (``modeaware.*``, see :class:`modeaware.config.ClientConfig`).
        kwargs: as the stock class takes them (``logger=``).

    Raises:
        ConfigError: an unknown ``modeaware.`` setting, or a bad value.
    """

    def __init__(self, conf: Mapping[str, Any], **kwargs: Any) -> None:
        config, stock_conf = split_client_config(with_process_settings(conf))
        super().__init__({**IDENTITY, **stock_conf}, **kwargs)
        self._calls = ControllerCalls(stock_conf, config)
        self._finalizer = weakref.finalize(self, abandon, self._calls.close, os.getpid())
        self._finalizer.atexit = False  # the registry of sources ends them at exit
        self._pool_lock = InnerLock()
        self._pool: ThreadPoolExecutor | None = None
        self._has_warned_of_exit = False

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As ``confluent_kafka.admin.AdminClient.set_sasl_credentials``; calls to the controller use them as well."""
        super().set_sasl_credentials(username, password)
        self._calls.set_sasl_credentials(username, password)

    def close(self) -> None:
        """Wait for pending requests to the controller, and release the views. Idempotent; the client stays usable."""
        with self._pool_lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
        self._calls.close()

    def __exit__(self, *exc_info: Any) -> bool | None:
        if isinstance(exc_info[1], KeyboardInterrupt):
            self._calls.give_up()  # no attempt may begin minutes after Ctrl-C
        self.close()
        return super().__exit__(*exc_info)

    def list_topics(self, *args: Any, **kwargs: Any) -> ClusterMetadata:
        """As the stock method; the name of a replaced and deleted topic stands for the topic that the name points to.

        As with the stock method, a request may name a missing topic. Brokers with automatic creation then create it.
        """
        return named.list_topics(super().list_topics, self._present, *args, **kwargs)

    def _present(self, name: str, timeout_s: float) -> str:
        try:
            views = self._calls.views(Deadline(REQUEST_TIMEOUT_S if timeout_s < 0 else timeout_s))
        except ModeSourceError as error:
            log.warning(
                "%s: listed under this name, because it is unknown whether the topic was replaced (%s)", name, error
            )
            return name
        return present_topic(name, views.view).topic

    def create_topics(  # type: ignore[override]  # the stock method overrides its own base class likewise
        self, new_topics: Sequence[NewTopic], **kwargs: Any
    ) -> dict[str, Future[Any]]:
        """Create topics: as the stock method does, and by KIP-409 where ``min_required_replication_factor`` is set.

        For a topic with this minimum, this client chooses the replicas, rack-aware, unless ``replica_assignment`` gives
        them. The brokers' own choice would not guarantee the minimum. The controller's policy in the mode log
        (``modeaware.under.replicated.creation``) decides which brokers may be down. With ``disabled``, or without a
        mode log, no broker may be down. A killed broker counts as alive until its ``broker.session.timeout.ms`` ends.

        The name of a replaced topic is refused, even if the topic was deleted: clients that use the name write to and
        read another topic. If the cluster has a mode log, this check reads the mode log. In an exit handler that runs
        after ours, this may be too late. Then topics without a minimum are created unchecked, and a warning is logged.

        Args:
            new_topics: stock ones and ours (:class:`modeaware.NewTopic`).
            kwargs: the stock method's: ``operation_timeout``, ``request_timeout`` (seconds), ``validate_only``.

        Returns:
            Per topic a future. Without a minimum, it is like the stock method's, and fails with KafkaException. With a
            minimum, its result is a :class:`~modeaware.admin.new_topics.CreationResult`. Such a future fails with
            RequestRefused (nothing was created; INVALID_REPLICATION_FACTOR: fewer live replicas than the minimum),
            ClusterError (outcome unknown), or ModeSourceError (the mode log cannot be read). The code
            TOPIC_ALREADY_EXISTS also covers the name of a replaced topic.

        Raises:
            RequestRefused: INVALID_REQUEST: a topic is named twice, and any topic has a minimum; nothing was sent.
            ValueError: the numbers of a topic contradict its ``replica_assignment``.
        """
        ours = {new.topic: new for new in new_topics if minimum_of(new) is not None}
        all_different = len({new.topic for new in new_topics}) == len(new_topics) > 0
        if not kwargs.keys() <= _OPTIONS or not (ours or all_different):
            # The stock method has an error for such arguments.
            return super().create_topics(list(new_topics), **kwargs)  # type: ignore[no-any-return,unused-ignore]  # untyped
        refuse_duplicates(new.topic for new in new_topics)
        for new in new_topics:
            check_numbers(new)
        others = {new.topic: new for new in new_topics if new.topic not in ours}
        deadline, validate_only = deadline_of(kwargs), is_validation(kwargs)
        stock = super().create_topics

        def create(new: Mapping[str, NewTopic]) -> dict[str, Any]:
            views = self._views_unless_exiting(deadline)
            refused = {} if views is None else refused_aliases(views, new)
            free = [new_topic for topic, new_topic in new.items() if topic not in refused]
            at_brokers = stock(free, **options_within(kwargs, deadline)) if free else {}
            return refused | {topic: _failure(topic, f, deadline.left_s() + 1) for topic, f in at_brokers.items()}

        def create_with_minimum(new: Mapping[str, NewTopic]) -> dict[str, Any]:
            refused = refused_aliases(self._calls.views(deadline), new)
            with self._creation(deadline) as creation:
                free = [new_topic for topic, new_topic in new.items() if topic not in refused]
                return refused | creation.create_topics(free, validate_only)

        return {
            **self._futures(others, partial(create, others), as_stock=True),
            **self._futures(ours, partial(create_with_minimum, ours)),
        }

    def create_partitions(  # type: ignore[override]  # the stock method overrides its own base class likewise
        self,
        new_partitions: Sequence[NewPartitions] | Mapping[str, NewPartitions],
        *,
        timeout_ms: int | None = None,
        **kwargs: Any,
    ) -> dict[str, Future[Any]]:
        """Grow topics, shrunk ones included. A list is the stock method's form, a mapping that of KIP-195.

        The growth of a topic with a record in the mode log goes to the controller: the count is then the number of
        *writable* partitions. Retired partitions are revived first; assignments and the minimum apply to new
        partitions. Until the old topic of a replacement is released, the growth of its new topic also goes to the
        controller, which refuses the growth. All other growths go to the brokers. :meth:`create_topics` explains the
        minimum. At the interpreter's exit, it may be too late to read the log. Then the growths of a list that have no
        minimum all go to the brokers.

        Args:
            new_partitions: a list, as for the stock method, or a mapping by topic (``NewPartitions.increase_to(6)``).
            timeout_ms: KIP-195's option, in milliseconds; it replaces ``request_timeout``.
            kwargs: the stock method's: ``operation_timeout``, ``request_timeout`` (seconds; default 60) and
                ``validate_only`` (default False; if True, nothing is changed).

        Returns:
            Per topic a future. If a list names the topic without a minimum, it is like the stock method's. Otherwise,
            its result is a :class:`~modeaware.admin.new_topics.CreationResult`. Such a future fails with RequestRefused
            (nothing was changed; ``code`` is Kafka's: see docs/admin.md), ClusterError (outcome unknown),
            ControllerUnavailable (the growth goes to the controller, and nothing was sent) or ModeSourceError.

        Raises:
            RequestRefused: INVALID_REQUEST: a topic is named twice, and any topic has a minimum; nothing was sent.
        """
        if timeout_ms is not None:
            kwargs["request_timeout"] = timeout_ms / 1000
        if isinstance(new_partitions, Mapping):
            growths = list(new_partitions.items())
            for topic, new in growths:
                if not isinstance(new, NewPartitions):
                    raise TypeError(f"topic {topic!r}: expected NewPartitions, not {new!r}")
            typed = dict(growths)
        else:
            growths = [(new.topic, new) for new in new_partitions]
            typed = {topic: new for topic, new in growths if minimum_of(new) is not None}
            all_different = len(dict(growths)) == len(growths) > 0
            if not kwargs.keys() <= _OPTIONS or not (typed or all_different):
                # The stock method has an error for such arguments.
                return super().create_partitions(list(new_partitions), **kwargs)  # type: ignore[no-any-return,unused-ignore]  # untyped
        if unknown := sorted(kwargs.keys() - _OPTIONS):
            raise TypeError(f"unknown arguments: {', '.join(unknown)}")
        refuse_duplicates(topic for topic, _ in growths)
        plain = {topic: new for topic, new in growths if topic not in typed}
        return {**self._create_as_stock(plain, kwargs), **self._create_typed(typed, kwargs)}

    def _create_as_stock(self, growths: Mapping[str, NewPartitions], kwargs: dict[str, Any]) -> dict[str, Future[Any]]:
        deadline = deadline_of(kwargs)

        def work() -> dict[str, Any]:
            views = self._views_unless_exiting(deadline)
            whole, controlled = (growths, {}) if views is None else split_growths(views, growths)
            at_brokers = self._create_stock(list(whole.values()), options_within(kwargs, deadline))
            results: dict[str, Any] = {}
            if views is not None and controlled:
                commands = [growth_command(topic, new, new.replica_assignment) for topic, new in controlled.items()]
                answers = self._calls.create_partitions(views, commands, is_validation(kwargs), deadline)
                results = {topic: each if isinstance(each, Exception) else None for topic, each in answers.items()}
            return results | {topic: _failure(topic, f, deadline.left_s() + 1) for topic, f in at_brokers.items()}

        return self._futures(growths, work, as_stock=True)

    def _create_typed(self, growths: Mapping[str, NewPartitions], kwargs: dict[str, Any]) -> dict[str, Future[Any]]:
        deadline, validate_only = deadline_of(kwargs), is_validation(kwargs)

        def work() -> dict[str, CreationResult | ModeAwareError]:
            views = self._calls.views(deadline)
            whole, controlled = split_growths(views, growths)

            def send(placed: Sequence[Placement]) -> Mapping[str, object]:
                commands = [
                    growth_command(placement.topic, growths[placement.topic], placement.assignments)
                    for placement in placed
                ]
                return self._calls.create_partitions(views, commands, validate_only, deadline)

            with self._creation(deadline) as creation:
                at_brokers = creation.create_partitions(whole, validate_only)
                return at_brokers | creation.create_partitions(controlled, validate_only, send)

        return self._futures(growths, work)

    def _create_stock(self, new_partitions: list[NewPartitions], options: dict[str, Any]) -> dict[str, Future[None]]:
        return super().create_partitions(new_partitions, **options) if new_partitions else {}

    def _views_unless_exiting(self, deadline: Deadline) -> Views | None:
        """Return the views, or None if the mode log cannot be read any more, because the interpreter is exiting. With
        None, the caller makes the stock call, as a plain client does."""
        try:
            return self._calls.views(deadline)
        except ModeSourceError:
            if not self._calls.has_ended:
                raise
        if not self._has_warned_of_exit:
            self._has_warned_of_exit = True
            log.warning(
                "the mode log cannot be read any more, because the interpreter is exiting: topics are created and "
                "grown as by confluent_kafka's AdminClient"
            )
        return None

    @contextmanager
    def _creation(self, deadline: Deadline) -> Iterator[Creation]:
        from modeaware.admin.creation import Creation
        from modeaware.wire.brokers import Brokers

        with closing(Brokers(self._calls.conf)) as brokers:
            yield Creation(brokers, lambda: self._calls.observed_brokers(deadline), deadline)

    def delete_partitions(
        self,
        partitions: Mapping[str, DeletePartitions],
        delay_ms: int | None = None,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[TopicResult]]:
        """Shrink topics (KIP-694 ``deletePartitions``): retire their last partitions, which then take no records.

        Args:
            partitions: per topic, how many partitions to keep.
            delay_ms: delete the records of a retired partition when the groups that the drain waits for have consumed
                them, and no earlier than this many milliseconds from now. With None, only the topic's own retention
                deletes them.
            request_timeout: the deadline, in seconds. Until then, ``modeaware.wire.retries`` decides which failures are
                retried.

        Returns:
            Per topic a future of :class:`~modeaware.wire.messages.TopicResult`: the retired partitions and their modes.
            It is done when the log has the shrink; the drain follows. It fails with RequestRefused (nothing changed;
            ``code`` has the reason), ControllerUnavailable (nothing was sent), ClusterError (outcome unknown), or
            ModeSourceError (the mode log cannot be read).

        Raises:
            RequestRefused: a count below 1 or a negative delay; nothing was sent.
            TypeError: an argument has the wrong type.
        """
        check_wanted(partitions)
        check_delay_ms(delay_ms)
        deadline = Deadline(request_timeout)
        return self._futures(
            partitions,
            lambda: self._calls.delete_partitions(self._calls.views(deadline), partitions, delay_ms, deadline),
        )

    def replace_topics(
        self,
        topics: Mapping[str, TopicReplacement],
        *,
        pause_before_switch: bool = False,
        undo: bool = False,
        validate_only: bool = False,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[TopicResult]]:
        """Replace topics by new ones with other partition counts. The records of each key stay in order.

        The controller creates each new topic and announces it. At the switch, the old name begins to point to the new
        topic, and our producers write to the new topic. Each group reads the old topic to its end, then the new topic.
        Nothing is copied, except the latest values of a compacted topic (``evacuate``). The controller deletes the old
        topic when the groups that it waits for have moved and ``delete_partitions_delay_ms`` allows it. Before the
        switch, a repeated call may change ``pause_before_switch``, and add to ``accept_state_loss``. An identical call
        changes nothing. Any other difference is refused (REASSIGNMENT_IN_PROGRESS); docs/replace-reference.md has the
        exception for ``keep_name``.

        Args:
            topics: old topic -> replacement. The first call reads and copies the configs of the old topic.
            pause_before_switch: do everything up to the switch, and wait. A repeated call without this option switches.
            undo: cancel the replacement before the switch, and delete the new topic. Of ``topics``, only the names
                count.
            validate_only: check everything, and change nothing.
            request_timeout: as in :meth:`delete_partitions`.

        Returns:
            Per topic a future of :class:`~modeaware.wire.messages.TopicResult`, without partitions. It is done when the
            log has the intent to replace. (:meth:`describe_modes` shows new topics that exist.) It fails with
            RequestRefused (nothing changed; ``code`` is Kafka's: TOPIC_AUTHORIZATION_FAILED, TOPIC_ALREADY_EXISTS,
            POLICY_VIOLATION, REASSIGNMENT_IN_PROGRESS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG
            and others; UNSUPPORTED_VERSION: the controller is too old), ControllerUnavailable (nothing was sent),
            ClusterError (outcome unknown), or ModeSourceError (the mode log cannot be read).

            The user needs ALTER, DELETE, DESCRIBE_CONFIGS and ALTER_CONFIGS on the old topic, and CREATE on the new
            topic or on the cluster. A call that leads to the switch is also refused with POLICY_VIOLATION

            - without ``accept_access_loss``, if an ACL of the old topic does not cover the new topic, or an ACL denies
              access to the new topic alone (checked only with DESCRIBE on the cluster);
            - without ``accept_mirroring``, if MirrorMaker 2 is in use and ``fence`` is ``config``;
            - without ``accept_auto_create``, if ``keep_name`` is set and a broker creates topics automatically (this
              check needs DESCRIBE_CONFIGS on the cluster).

        Raises:
            RequestRefused: a number is out of range; nothing was sent.
            TypeError: an argument has the wrong type.
        """
        for topic, wanted in topics.items():
            check_replacement(topic, wanted)
            check_delay_ms(wanted.delete_partitions_delay_ms)
        deadline = Deadline(request_timeout)

        def work() -> dict[str, Any]:
            from modeaware.admin.replacements import by_topic_asked, replace_commands

            views = self._calls.views(deadline)
            retrying = partial(Retrying, deadline, RetryPolicy.from_conf(self._calls.conf))
            options = {"pause_before_switch": pause_before_switch, "undo": undo, "validate_only": validate_only}
            with closing(self._brokers(request_timeout)) as brokers:
                new_topics = {topic: views.view(topic).replaced_by for topic in topics}
                under_way = {topic: new_topic for topic, new_topic in new_topics.items() if new_topic is not None}
                servers = bootstrap_servers(self._calls.conf)
                commands, failures = replace_commands(brokers, topics, under_way, servers, retrying, **options)
            answers = self._calls.replace_topics(views, commands, validate_only, deadline)
            return failures | by_topic_asked(commands, answers, topics)

        return self._futures(topics, work)

    def forget_aliases(
        self, topics: Iterable[str], *, validate_only: bool = False, request_timeout: float = REQUEST_TIMEOUT_S
    ) -> dict[str, Future[TopicResult]]:
        """End aliases: names of replaced and deleted topics, which point to the topics that have replaced them.

        Afterwards, clients use the topic that brokers have under the name, if there is one.

        Args:
            topics: the names.
            validate_only, request_timeout: as in :meth:`replace_topics`.

        Returns:
            Per name a future, as from :meth:`replace_topics`; INVALID_REQUEST: the name is no alias. The user needs
            ALTER and DELETE on the topic that the name points to, or ALTER on the cluster. If that topic was deleted,
            the user needs ALTER on the cluster.
        """
        names = list(dict.fromkeys(topics))
        deadline = Deadline(request_timeout)

        def work() -> dict[str, Any]:
            views = self._calls.views(deadline)
            commands, failures = [], {}
            for topic in names:
                if (points_to := views.view(topic).replaced_by) is None:
                    why = f"topic {topic!r}: the name is no alias and points to no other topic"
                    failures[topic] = RequestRefused(why, code=ErrorCode.INVALID_REQUEST, topic=topic)
                    continue
                commands.append(ReplaceTopicCommand(topic, points_to.topic, points_to.partition_count, forget=True))
            return failures | self._calls.replace_topics(views, commands, validate_only, deadline)

        return self._futures(names, work)

    def describe_modes(
        self, topics: Iterable[str] | None = None, request_timeout: float = REQUEST_TIMEOUT_S
    ) -> dict[str, Future[TopicView]]:
        """Read the partition modes from the mode log: per topic a future of a :class:`~modeaware.topic_view.TopicView`.

        Args:
            topics: the topics. One without a record (never changed) has empty ``modes``: all partitions are ReadWrite.
                None means every topic that has a record; then the call itself blocks until the log has been read.
            request_timeout: how long to wait for the log, in seconds; then the futures fail with ModeSourceError.

        Raises:
            ModeSourceError: ``topics`` is None and the log cannot be read.
        """
        deadline = Deadline(request_timeout)
        if topics is None:
            all_views = dict(self._calls.views(deadline).views())
            return self._futures(all_views, lambda: all_views)
        wanted = list(dict.fromkeys(topics))

        def work() -> dict[str, TopicView]:
            views = self._calls.views(deadline)
            return {topic: views.view(topic) for topic in wanted}

        return self._futures(wanted, work)

    def alter_group_rules(
        self,
        add: Iterable[GroupRule] = (),
        remove: Iterable[tuple[str, str, str]] = (),
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> Future[None]:
        """Change the rules about the groups that a drain waits for: all changes in one step, or none.

        Args:
            add: rules; a rule replaces an existing one with the same kind, group and topic.
            remove: rules by their ``(kind, group, topic)``, removed before any is added.
            request_timeout: how long to wait for the controller's answer, in seconds.

        Returns:
            A future that is done when the log has the rules. It fails like the futures of :meth:`delete_partitions`.
            RequestRefused may also mean that a rule is invalid, or that a rule to remove does not exist.

        Raises:
            TypeError: an argument has the wrong type; nothing was sent.
        """
        command = AlterGroupRulesCommand(checked_rules(add), checked_keys(remove))
        deadline = Deadline(request_timeout)

        def work() -> dict[str, ModeAwareError | None]:
            answers = self._calls.alter_group_rules(self._calls.views(deadline), command, deadline)
            return {topic: answer if isinstance(answer, ModeAwareError) else None for topic, answer in answers.items()}

        return self._futures([command.topic], work)[command.topic]

    def describe_group_rules(self, request_timeout: float = REQUEST_TIMEOUT_S) -> Future[tuple[GroupRule, ...]]:
        """Read the rules about groups from the mode log, in the order in which they were made, expired ones included.

        Args:
            request_timeout: how long to wait for the log, in seconds.

        Returns:
            A future; it fails with ModeSourceError (the log cannot be read) or RecordError (the rules cannot be read).
        """
        deadline = Deadline(request_timeout)
        return self._future(lambda: self._calls.group_rules(deadline))

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[_Key, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> dict[_Key, Future[None]]:
        """Move partitions to other brokers, or cancel moves (Java's ``Admin.alterPartitionReassignments``).

        Args:
            reassignments: per partition, the broker ids of its new replicas, the preferred leader first; or None, to
                cancel its reassignment in progress. A key is a pair, or a TopicPartition (its topic and partition).
            allow_replication_factor_change: if False, a change of the number of a partition's replicas is refused
                (KIP-860). A reassignment in progress counts as completed. Needs Kafka 4.1; no effect on cancellations.
            request_timeout: how long to wait for each answer, in seconds.

        Returns:
            Per partition, under the caller's own key, a future that is done when the reassignment is accepted
            (:meth:`list_partition_reassignments` shows its progress) or the cancellation is done. It fails for that
            partition alone with

            - RequestRefused: nothing was changed; ``code`` is INVALID_REPLICATION_FACTOR (KIP-860),
              INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS (of a cancellation),
              CLUSTER_AUTHORIZATION_FAILED, or UNSUPPORTED_VERSION (the broker does not have the option);
            - ClusterError: outcome unknown.

        Raises:
            TypeError: an argument has the wrong type; nothing was sent.
            ValueError: a partition is named twice; nothing was sent.
        """
        keys = pairs(reassignments)
        wanted = {
            pair: None if (replicas := reassignments[key]) is None else broker_ids(pair, replicas)
            for pair, key in keys.items()
        }

        def work() -> dict[tuple[str, int], ModeAwareError | None]:
            from modeaware.admin.reassignments import alter_reassignments

            with closing(self._brokers(request_timeout)) as brokers:
                return alter_reassignments(
                    brokers,
                    wanted,
                    allow_replication_factor_change=allow_replication_factor_change,
                    timeout_s=request_timeout,
                )

        futures = self._futures(keys, work)
        return {key: futures[pair] for pair, key in keys.items()}

    def list_partition_reassignments(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]] | None = None,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> Future[dict[tuple[str, int], PartitionReassignment]]:
        """List the reassignments in progress, as the cluster's controller returns them (Java's
        ``Admin.listPartitionReassignments``).

        Args:
            partitions: which ones, or None for all. The answer leaves out partitions that are not being reassigned.
            request_timeout: how long to wait for the answer, in seconds.

        Returns:
            A future of a mapping (topic, partition) ->
            :class:`~modeaware.admin.reassignments.PartitionReassignment`. It fails with RequestRefused (not authorized)
            or ClusterError (no answer).

        Raises:
            TypeError: an argument has the wrong type.
        """
        wanted = None if partitions is None else [pair_of(key) for key in partitions]

        def work() -> dict[tuple[str, int], PartitionReassignment]:
            from modeaware.admin.reassignments import list_reassignments

            with closing(self._brokers(request_timeout)) as brokers:
                return list_reassignments(brokers, wanted, request_timeout)

        return self._future(work)

    def _brokers(self, timeout_s: float) -> Brokers:
        """Return connections for one call, because one thread at a time may use them. Loads kafka-python."""
        from modeaware.wire.brokers import Brokers

        return Brokers(self._calls.conf, timeout_s=min(timeout_s, _BROKER_TIMEOUT_S))

    def _future(self, work: Callable[[], _T]) -> Future[_T]:
        """Return a future for the result of ``work`` in another thread."""
        return self._futures([""], lambda: {"": work()})[""]

    def _futures(
        self, keys: Iterable[Any], work: Callable[[], Mapping[Any, Any]], *, as_stock: bool = False
    ) -> dict[Any, Future[Any]]:
        """Return a future per key (a topic, say), with the result or the exception of ``work`` in another thread.

        An exception among the results fails only its own future. With ``as_stock``, a ModeAwareError among them becomes
        a KafkaException. Once the main thread has ended, the pool takes no work: ``work`` runs in the calling thread.
        """
        futures: dict[Any, Future[Any]] = {key: Future() for key in keys}
        for future in futures.values():
            future.set_running_or_notify_cancel()
        if futures:
            with self._pool_lock:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="modeaware-admin")
                try:
                    whole = self._pool.submit(work)
                except RuntimeError:
                    if threading.main_thread().is_alive():
                        raise
                    whole = None
            if whole is None:
                whole = _done_here(work)
            whole.add_done_callback(partial(_fill, futures, as_stock))
        return futures


def _done_here(work: Callable[[], _T]) -> Future[_T]:
    done: Future[_T] = Future()
    try:
        done.set_result(work())
    except Exception as error:  # noqa: BLE001 - the caller's futures raise it
        done.set_exception(error)
    return done


def _fill(futures: Mapping[Any, Future[Any]], as_stock: bool, whole: Future[Mapping[Any, Any]]) -> None:
    failure = whole.exception()
    answers = whole.result() if failure is None else dict.fromkeys(futures, failure)
    for topic, future in futures.items():
        unanswered = ModeAwareError(f"topic {topic!r}: the response has no result for this topic", topic=str(topic))
        answer = answers.get(topic, unanswered)
        if isinstance(answer, ModeAwareError) and as_stock:
            code = KafkaError._FAIL if answer.code is None else int(answer.code)
            stock = KafkaException(KafkaError(code, answer.message))
            stock.__cause__ = answer
            future.set_exception(stock)
        elif isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _failure(topic: str, future: Future[None], timeout_s: float) -> BaseException | None:
    try:
        return os_threads.awaitable(future).exception(timeout_s)
    except FutureTimeoutError:
        return ClusterError(
            f"topic {topic!r}: no answer in time about its creation or growth; the outcome is unknown. Describe the "
            "topic before a retry",
            code=ErrorCode.REQUEST_TIMED_OUT,
            topic=topic,
        )
