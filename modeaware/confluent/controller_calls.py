"""Finding the controller by its claim in the mode log, and asking it: the blocking half of our AdminClient."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from modeaware.config import ClientConfig
from modeaware.errors import ControllerUnavailable, ErrorCode, ModeAwareError, RecordError, RequestRefused, ViewTimeout
from modeaware.lifecycle.commands import AlterGroupRulesCommand, CreatePartitionsCommand
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRule
from modeaware.modelog.observed_brokers import OBSERVED_BROKERS_KEY, ObservedBrokersRecord
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import ClaimRecord
from modeaware.modelog.replay import Replay
from modeaware.views import registry
from modeaware.views.source import Views

if TYPE_CHECKING:
    from modeaware.wire.messages import TopicResult

    _Results = Mapping[str, TopicResult | RequestRefused]

Answers = dict[str, "TopicResult | ModeAwareError"]
"""Per topic what was answered; what made the request fail as a whole is the answer of each of its topics."""


def group_rules_of(replay: Replay, mode_log_topic: str) -> tuple[GroupRule, ...]:
    """The rules that a mode log holds, expired ones too.

    Raises:
        RecordError: their record cannot be used here: which rules hold is not known.
    """
    if replay.is_unreadable(GROUP_RULES_KEY):
        raise RecordError(
            f"the rules about groups in {mode_log_topic!r} cannot be used here (rubbish, or a newer version); upgrade "
            "modeaware, or look at the log"
        )
    return replay.group_rules.rules if replay.group_rules is not None else ()


class Deadline:
    """A moment on the monotonic clock by which something has to be done."""

    def __init__(self, timeout_s: float) -> None:
        self._at_s = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """What is left, in seconds; always above 0, so that it can be given as a timeout."""
        return max(self._at_s - time.monotonic(), 0.001)


class ControllerCalls:
    """Requests to the controller of one cluster. May be used from any thread; every call blocks until its deadline.

    Args:
        conf: librdkafka configuration, ours taken out.
        config: our settings.
    """

    def __init__(self, conf: Mapping[str, Any], config: ClientConfig) -> None:
        self._conf = conf
        self._config = config
        self._lock = Lock()
        self._views: Views | None = None

    def views(self, deadline: Deadline) -> Views:
        """Views that include everything on the mode log now. The handle is taken when first needed, and kept.

        Raises:
            ModeSourceError: the mode log cannot be read (in time).
        """
        with self._lock:
            if self._views is None:
                self._views = registry.acquire(self._conf, self._config)
            views = self._views
        if not views.wait_ready(deadline.left_s()):
            cause = views.error()
            detail = f": {cause}" if cause is not None else ""
            raise ViewTimeout(f"the mode log {self._config.mode_log_topic!r} was not read in time{detail}") from cause
        views.refresh(deadline.left_s())
        return views

    def close(self) -> None:
        """Give the views back. The next call takes them again."""
        with self._lock:
            views, self._views = self._views, None
        if views is not None:
            views.close()

    def delete_partitions(
        self,
        views: Views,
        counts: Mapping[str, int],
        delay_ms: int,
        immediate_delete: bool,
        accept_state_loss: Mapping[str, Sequence[str]],
        evacuate: Collection[str],
        deadline: Deadline,
    ) -> Answers:
        """Have topics shrunk to ``counts``. Errors, in the answers: RequestRefused (nothing changed),
        ControllerUnavailable (nothing was sent), ClusterError (sent and not answered), ModeSourceError.
        """
        from modeaware.wire import messages

        def message(timeout_ms: int) -> Any:
            return messages.delete_partitions_request(
                counts,
                delay_ms=delay_ms,
                immediate_delete=immediate_delete,
                timeout_ms=timeout_ms,
                accept_state_loss=accept_state_loss,
                evacuate=evacuate,
            )

        return self._answers(counts, views, message, deadline)

    def alter_group_rules(self, views: Views, command: AlterGroupRulesCommand, deadline: Deadline) -> Answers:
        """Have rules about groups changed. The one answer has the key ``""``; errors as :meth:`delete_partitions`."""
        from modeaware.wire import messages

        def message(timeout_ms: int) -> Any:
            return messages.alter_group_rules_request(command, timeout_ms=timeout_ms)

        return self._answers([command.topic], views, message, deadline)

    def group_rules(self, deadline: Deadline) -> tuple[GroupRule, ...]:
        """The rules about groups on the mode log now.

        Raises:
            RecordError: their record cannot be used here.
            ModeSourceError: the mode log cannot be read (in time).
        """
        log_topic = self._config.mode_log_topic
        return group_rules_of(read_mode_log(self._conf, log_topic, deadline.left_s()), log_topic)

    def observed_brokers(self, deadline: Deadline) -> ObservedBrokersRecord | None:
        """The brokers that the controller has seen, and its policy of under-replicated creations; None: no record.

        Raises:
            RecordError: the record cannot be used here.
            ModeSourceError: the mode log cannot be read (in time).
        """
        log_topic = self._config.mode_log_topic
        replay = read_mode_log(self._conf, log_topic, deadline.left_s())
        if replay.is_unreadable(OBSERVED_BROKERS_KEY):
            raise RecordError(
                f"the observed brokers in {log_topic!r} cannot be used here (rubbish, or a newer version); upgrade "
                "modeaware, or create without a minimum"
            )
        return replay.observed_brokers

    def create_partitions(
        self, views: Views, commands: Sequence[CreatePartitionsCommand], validate_only: bool, deadline: Deadline
    ) -> Answers:
        """Have topics grown. Errors as :meth:`delete_partitions` has them."""
        from modeaware.wire import messages

        def message(timeout_ms: int) -> Any:
            return messages.create_partitions_request(commands, validate_only=validate_only, timeout_ms=timeout_ms)

        return self._answers([command.topic for command in commands], views, message, deadline)

    def _answers(
        self, topics: Iterable[str], views: Views, message_of: Callable[[int], Any], deadline: Deadline
    ) -> Answers:
        try:
            return {**self._ask(views, message_of, deadline)}
        except ModeAwareError as error:
            return dict.fromkeys(topics, error)

    def _ask(self, views: Views, message_of: Callable[[int], Any], deadline: Deadline) -> _Results:
        """Ask the controller that the log names; where it is gone, the one that has taken over meanwhile."""
        claim = views.claim()
        try:
            return self._ask_at(claim, message_of, deadline)
        except ControllerUnavailable:
            views.refresh(deadline.left_s())
            if views.claim() == claim:
                raise
        return self._ask_at(views.claim(), message_of, deadline)

    def _ask_at(self, claim: ClaimRecord | None, message_of: Callable[[int], Any], deadline: Deadline) -> _Results:
        from modeaware.wire import client, messages

        if claim is None or claim.address is None:
            raise ControllerUnavailable(f"no controller is running for this cluster; {self._how_to_start()}")
        left_s = deadline.left_s()
        message = message_of(max(int(left_s * 900), 1))  # it has to answer before we stop waiting for it
        try:
            results = messages.results_of(client.request(self._conf, claim, message, left_s))
        except ControllerUnavailable as error:
            raise ControllerUnavailable(f"{error}; {self._how_to_start()}") from error
        except RequestRefused as error:
            results = {"": error}
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
        for result in results.values():  # a standby: another one has taken over, or is about to
            if isinstance(result, RequestRefused) and result.code is ErrorCode.NOT_CONTROLLER:
                raise ControllerUnavailable(result.message) from result
        return results

    def _how_to_start(self) -> str:
        servers = self._conf.get("bootstrap.servers", "HOST:PORT")
        return (
            f"start one with 'modeaware controller --bootstrap-server {servers}', try again in some seconds where "
            "another one stands by, or let a command do its work: shrink, grow and apply with --wait"
        )
