"""Our AdminClient's requests to the active controller, whose address is in the mode log, and reads of the mode log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from modeaware.callouts import InnerLock
from modeaware.config import ClientConfig
from modeaware.errors import (
    ClusterError,
    ControllerUnavailable,
    ErrorCode,
    ModeAwareError,
    ModeSourceError,
    RecordError,
    RequestRefused,
    ViewTimeout,
)
from modeaware.librdkafka import with_credentials
from modeaware.lifecycle.commands import AlterGroupRulesCommand, CreatePartitionsCommand, ReplaceTopicCommand
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRule
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import OBSERVED_BROKERS_KEY, ClaimRecord, ObservedBrokersRecord
from modeaware.modelog.replay import Replay
from modeaware.views import registry
from modeaware.views.source import Views
from modeaware.wire.retries import Deadline, Outcome, Retrying, RetryPolicy, outcome_of, outcome_unknown
from modeaware.wire.security import bootstrap_servers

if TYPE_CHECKING:
    from modeaware.wire.messages import TopicResult

REQUEST_TIMEOUT_S = 60.0

Answers = dict[str, "TopicResult | ModeAwareError"]
"""The answer for each topic. If a request fails as a whole, its error is the answer for each of its topics."""


@dataclass(frozen=True)
class DeletePartitions:
    """KIP-694's class of this name: how far to shrink one topic.

    Attributes:
        total_count: how many partitions to keep. The partitions with the highest ids are retired.
        immediate_delete: delete the retired partitions' records without waiting for a delay or for consumers.
        accept_state_loss: the names of groups that keep state per partition (Kafka Streams) and may lose the state of
            the keys that move. The controller refuses the shrink if such a group is not named here.
    """

    total_count: int
    immediate_delete: bool = False
    accept_state_loss: Sequence[str] = ()


def group_rules_of(replay: Replay, mode_log_topic: str) -> tuple[GroupRule, ...]:
    """Return the rules in a mode log, expired ones included.

    Raises:
        RecordError: this version cannot read the rules' record, so the rules are unknown.
    """
    _check_readable(replay, GROUP_RULES_KEY, f"the rules about groups in {mode_log_topic!r}", "inspect the log")
    return replay.group_rules.rules if replay.group_rules is not None else ()


def _check_readable(replay: Replay, key: str, what: str, instead: str) -> None:
    if replay.is_unreadable(key):
        raise RecordError(
            f"{what} cannot be read (malformed, or written by a newer version); upgrade modeaware, or {instead}"
        )


class ControllerCalls:
    """Requests to the controller of one cluster, from any thread. A call blocks for the answer, until its deadline.

    Args:
        conf: librdkafka's configuration, without our settings.
        config: our settings.

    Attributes:
        conf: the configuration with the present credentials.
    """

    def __init__(self, conf: Mapping[str, Any], config: ClientConfig) -> None:
        self.conf = conf
        self.config = config
        self._lock = InnerLock()
        self._views: Views | None = None
        self._given_up = Event()

    def give_up(self) -> None:
        """Let calls send nothing more until :meth:`close`. Waiting calls return the answers that they have."""
        self._given_up.set()

    def views(self, deadline: Deadline) -> Views:
        """Return views that include every record that the mode log has now. The handle is acquired once, and kept.

        Raises:
            ModeSourceError: the mode log cannot be read (in time).
        """
        with self._lock:
            if self._views is None:
                self._views = registry.acquire(self.conf, self.config)
            views = self._views
        if not views.wait_ready(deadline.left_s()):
            cause = views.error()
            why = "was not read before the interpreter's exit" if views.ended else "was not read in time"
            detail = f": {cause}" if cause is not None else ""
            raise ViewTimeout(f"the mode log {self.config.mode_log_topic!r} {why}{detail}") from cause
        views.refresh(deadline.left_s())
        return views

    @property
    def has_ended(self) -> bool:
        """Whether the views have ended, because the interpreter is exiting. :meth:`close` does not count."""
        with self._lock:
            return self._views is not None and self._views.ended

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Connect with other credentials from now on."""
        with self._lock:
            self.conf = with_credentials(self.conf, username, password)
            views = self._views
        if views is not None:
            views.set_sasl_credentials(username, password)

    def close(self) -> None:
        """Release the views. The next call acquires them again."""
        self._given_up.clear()
        with self._lock:
            views, self._views = self._views, None
        if views is not None:
            views.close()

    def delete_partitions(
        self, views: Views, shrinks: Mapping[str, DeletePartitions], delay_ms: int | None, deadline: Deadline
    ) -> Answers:
        """Shrink topics. The answers may be errors: RequestRefused (nothing changed), ControllerUnavailable (nothing
        was sent), ClusterError (sent, outcome unknown), ModeSourceError (the mode log cannot be read).

        An attempt without an answer is repeated, unless it is an ``immediate_delete``. The mode log shows whether an
        earlier attempt was carried out.
        """
        answers: Answers = {}
        for immediate in (False, True):  # a request has one flag for all of its topics
            if chosen := {
                topic: shrink for topic, shrink in shrinks.items() if bool(shrink.immediate_delete) is immediate
            }:
                answers |= self._delete_partitions(views, chosen, delay_ms, immediate, deadline)
        return answers

    def _delete_partitions(
        self,
        views: Views,
        shrinks: Mapping[str, DeletePartitions],
        delay_ms: int | None,
        immediate_delete: bool,
        deadline: Deadline,
    ) -> Answers:
        from modeaware.wire import messages

        before = {topic: views.view(topic) for topic in shrinks}

        def message(topics: Sequence[str], timeout_ms: int) -> Any:
            return messages.delete_partitions_request(
                {topic: shrinks[topic].total_count for topic in topics},
                delay_ms=delay_ms,
                immediate_delete=immediate_delete,
                timeout_ms=timeout_ms,
                accept_state_loss={topic: shrinks[topic].accept_state_loss for topic in topics},
            )

        def resolve(topic: str, last: ModeAwareError) -> TopicResult | ModeAwareError:
            try:
                views.refresh(deadline.left_s())
            except ModeSourceError:
                return outcome_unknown(topic, last)
            view = views.view(topic)
            unchanged = (view.topic_id, view.epoch) == (before[topic].topic_id, before[topic].epoch)
            if unchanged and outcome_of(last) is Outcome.FINAL:
                return last
            if unchanged or len(view.writable) != shrinks[topic].total_count:
                return outcome_unknown(topic, last)
            retired = {p: mode for p, mode in enumerate(view.modes) if not mode.writable}
            return messages.TopicResult(topic, retired, "an earlier attempt has done it")

        return self._answers(shrinks, views, message, deadline, repeatable=not immediate_delete, resolve=resolve)

    def alter_group_rules(self, views: Views, command: AlterGroupRulesCommand, deadline: Deadline) -> Answers:
        """Change rules about groups. The result has one answer, under the key ``""``; errors as for
        :meth:`delete_partitions`."""
        from modeaware.wire import messages

        def message(_: Sequence[str], timeout_ms: int) -> Any:
            return messages.alter_group_rules_request(command, timeout_ms=timeout_ms)

        return self._answers([command.topic], views, message, deadline, repeatable=not command.remove)

    def group_rules(self, deadline: Deadline) -> tuple[GroupRule, ...]:
        """Return the rules about groups that the mode log has now.

        Raises:
            RecordError: this version cannot read the rules' record.
            ModeSourceError: the mode log cannot be read (in time).
        """
        return group_rules_of(self._read_log(deadline), self.config.mode_log_topic)

    def observed_brokers(self, deadline: Deadline) -> ObservedBrokersRecord | None:
        """Return the controller's record of the brokers that it has seen, with its policy of under-replicated
        creations. Return None if the log has no such record.

        Raises: as :meth:`group_rules`.
        """
        replay, what = self._read_log(deadline), f"the list of brokers in {self.config.mode_log_topic!r}"
        _check_readable(replay, OBSERVED_BROKERS_KEY, what, "create without a minimum of replicas")
        return replay.observed_brokers

    def _read_log(self, deadline: Deadline) -> Replay:
        return read_mode_log(self.conf, self.config.mode_log_topic, deadline.left_s())

    def create_partitions(
        self, views: Views, commands: Sequence[CreatePartitionsCommand], validate_only: bool, deadline: Deadline
    ) -> Answers:
        """Grow topics. Errors as for :meth:`delete_partitions`."""
        from modeaware.wire import messages

        by_topic = {command.topic: command for command in commands}

        def message(topics: Sequence[str], timeout_ms: int) -> Any:
            chosen = [by_topic[topic] for topic in topics]
            return messages.create_partitions_request(chosen, validate_only=validate_only, timeout_ms=timeout_ms)

        return self._answers(by_topic, views, message, deadline, repeatable=validate_only)

    def replace_topics(
        self, views: Views, commands: Sequence[ReplaceTopicCommand], validate_only: bool, deadline: Deadline
    ) -> Answers:
        """Replace topics, or undo replacements. Errors as for :meth:`delete_partitions`."""
        from modeaware.wire import messages

        by_topic = {command.topic: command for command in commands}

        def message(topics: Sequence[str], timeout_ms: int) -> Any:
            chosen = [by_topic[topic] for topic in topics]
            return messages.replace_topics_request(chosen, validate_only=validate_only, timeout_ms=timeout_ms)

        # A second attempt of an undo or a forget would be refused, because nothing would be left to undo or forget.
        repeatable = validate_only or not any(command.undo or command.forget for command in commands)
        return self._answers(by_topic, views, message, deadline, repeatable=repeatable)

    def _answers(
        self,
        topics: Collection[str],
        views: Views,
        message_of: Callable[[Sequence[str], int], Any],
        deadline: Deadline,
        *,
        repeatable: bool,
        resolve: Callable[[str, ModeAwareError], TopicResult | ModeAwareError] = outcome_unknown,
    ) -> Answers:
        """Send requests to the active controller. If this controller is gone, send the requests to the next one, once
        the log has the next one's address (:mod:`modeaware.wire.retries`)."""
        first = True

        def attempt(pending: Sequence[str]) -> Mapping[str, TopicResult | ModeAwareError]:
            nonlocal first
            try:
                if not first:  # before the first attempt, the caller has read the log
                    views.refresh(deadline.left_s())
            except ModeSourceError as error:
                # The deadline ended the read: nothing was sent, and the earlier answers have the reason.
                return {} if deadline.is_over else dict.fromkeys(pending, error)
            first = False
            return ask(pending)

        def ask(pending: Sequence[str]) -> Answers:
            if self._given_up.is_set():
                return dict.fromkeys(pending, ControllerUnavailable("the call was given up, and nothing was sent"))
            try:
                return self._ask(views.claim(), partial(message_of, pending), deadline)
            except ModeAwareError as error:
                if error.code is not ErrorCode.MESSAGE_TOO_LARGE or len(pending) < 2:
                    return dict.fromkeys(pending, error)
            half = len(pending) // 2  # the message was too large, and nothing was sent
            return ask(pending[:half]) | ask(pending[half:])

        retrying = Retrying(deadline, RetryPolicy.from_conf(self.conf), sleep=self._given_up.wait)
        return retrying.each(topics, attempt, repeatable=repeatable, resolve=resolve)

    def _ask(self, claim: ClaimRecord | None, message_of: Callable[[int], Any], deadline: Deadline) -> Answers:
        from modeaware.wire import client, messages

        if claim is None or claim.address is None:
            raise self._unavailable("no controller is running for this cluster")
        left_s = deadline.left_s()
        message = message_of(max(int(left_s * 900), 1))  # the answer has to arrive before our deadline
        try:
            results = messages.results_of(client.request(self.conf, claim, message, left_s))
        except ControllerUnavailable as error:
            raise self._unavailable(error.message, error) from error
        except RequestRefused as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise self._unavailable(error.message) from error
            if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:  # the controller failed on the request as a whole
                raise ClusterError(error.message, code=error.code) from error
            raise
        return {
            topic: self._unavailable(result.message)
            if isinstance(result, RequestRefused) and result.code is ErrorCode.NOT_CONTROLLER
            else result
            for topic, result in results.items()
        }

    def _unavailable(self, why: str, error: ModeAwareError | None = None) -> ControllerUnavailable:
        servers = bootstrap_servers(self.conf)
        return ControllerUnavailable(
            f"{why}; start one with 'modeaware controller --bootstrap-server {servers}', retry in some seconds if a "
            "standby takes over, or let a command do the work itself: shrink, grow, replace and apply with --wait",
            code=error.code if error is not None else None,
        )
