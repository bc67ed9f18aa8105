"""What the parts of our AdminClient share: requests to the controller that the mode log names, and futures filled by
threads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from modeaware import librdkafka_admin
from modeaware.config import ClientConfig, split_client_config, with_process_settings
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
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.lifecycle.commands import AlterGroupRulesCommand, CreatePartitionsCommand
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRule
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import OBSERVED_BROKERS_KEY, ClaimRecord, ObservedBrokersRecord
from modeaware.modelog.replay import Replay
from modeaware.retries import Deadline, Outcome, Retrying, RetryPolicy, in_doubt, outcome_of
from modeaware.views import registry
from modeaware.views.source import Views
from modeaware.wire.capabilities import SOFTWARE_NAME, UNDERLYING_NAME

if TYPE_CHECKING:
    from modeaware.wire.messages import TopicResult

REQUEST_TIMEOUT_S = 60.0

Answers = dict[str, "TopicResult | ModeAwareError"]
"""Per topic what was answered; what made the request fail as a whole is the answer of each of its topics."""


def group_rules_of(replay: Replay, mode_log_topic: str) -> tuple[GroupRule, ...]:
    """The rules that a mode log holds, expired ones too.

    Raises:
        RecordError: their record cannot be used here: which rules hold is not known.
    """
    if replay.is_unreadable(GROUP_RULES_KEY):
        raise RecordError(
            f"the rules about groups in {mode_log_topic!r} cannot be used here (malformed, or written by a newer "
            "version); upgrade modeaware, or look at the log"
        )
    return replay.group_rules.rules if replay.group_rules is not None else ()


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
        self._given_up = Event()

    def give_up(self) -> None:
        """Begin no further attempts, until :meth:`close`: calls that wait for one end with the answer that they
        have."""
        self._given_up.set()

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
        self._given_up.clear()
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
        ControllerUnavailable (nothing was sent), ClusterError (sent, outcome unknown), ModeSourceError.

        An attempt without an answer is repeated, except an ``immediate_delete``. Whether an earlier attempt was carried
        out is read from the mode log.
        """
        from modeaware.wire import messages

        before = {topic: views.view(topic) for topic in counts}

        def message(topics: Sequence[str], timeout_ms: int) -> Any:
            return messages.delete_partitions_request(
                {topic: counts[topic] for topic in topics},
                delay_ms=delay_ms,
                immediate_delete=immediate_delete,
                timeout_ms=timeout_ms,
                accept_state_loss=accept_state_loss,
                evacuate=evacuate,
            )

        def settle(topic: str, last: ModeAwareError) -> TopicResult | ModeAwareError:
            try:
                views.refresh(deadline.left_s())
            except ModeSourceError:
                return in_doubt(topic, last)
            now = views.view(topic)
            unchanged = (now.topic_id, now.epoch) == (before[topic].topic_id, before[topic].epoch)
            if unchanged and outcome_of(last) is Outcome.FINAL:
                return last
            if unchanged or len(now.writable) != counts[topic]:
                return in_doubt(topic, last)
            retired = {p: mode for p, mode in enumerate(now.modes) if not mode.writable}
            return messages.TopicResult(topic, retired, "an earlier attempt has done it")

        return self._answers(counts, views, message, deadline, repeatable=not immediate_delete, settle=settle)

    def alter_group_rules(self, views: Views, command: AlterGroupRulesCommand, deadline: Deadline) -> Answers:
        """Have rules about groups changed. The one answer has the key ``""``; errors as :meth:`delete_partitions`."""
        from modeaware.wire import messages

        def message(_: Sequence[str], timeout_ms: int) -> Any:
            return messages.alter_group_rules_request(command, timeout_ms=timeout_ms)

        return self._answers([command.topic], views, message, deadline, repeatable=not command.remove)

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
                f"the observed brokers in {log_topic!r} cannot be used here (malformed, or written by a newer "
                "version); upgrade modeaware, or create without a minimum"
            )
        return replay.observed_brokers

    def create_partitions(
        self, views: Views, commands: Sequence[CreatePartitionsCommand], validate_only: bool, deadline: Deadline
    ) -> Answers:
        """Have topics grown. Errors as :meth:`delete_partitions` has them."""
        from modeaware.wire import messages

        by_topic = {command.topic: command for command in commands}

        def message(topics: Sequence[str], timeout_ms: int) -> Any:
            chosen = [by_topic[topic] for topic in topics]
            return messages.create_partitions_request(chosen, validate_only=validate_only, timeout_ms=timeout_ms)

        return self._answers(by_topic, views, message, deadline, repeatable=validate_only)

    def _answers(
        self,
        topics: Collection[str],
        views: Views,
        message_of: Callable[[Sequence[str], int], Any],
        deadline: Deadline,
        *,
        repeatable: bool,
        settle: Callable[[str, ModeAwareError], TopicResult | ModeAwareError] = in_doubt,
    ) -> Answers:
        """Ask the controller that the log names, and the next one where it is gone: see :mod:`modeaware.retries`."""
        first = True

        def attempt(pending: Sequence[str]) -> Mapping[str, TopicResult | ModeAwareError]:
            nonlocal first
            try:
                if not first:  # before the first one, the caller has read the log
                    views.refresh(deadline.left_s())
            except ModeSourceError as error:
                # Cut short by the deadline: nothing was sent, and the earlier answers say why.
                return {} if deadline.is_over else dict.fromkeys(pending, error)
            first = False
            return ask(pending)

        def ask(pending: Sequence[str]) -> dict[str, TopicResult | ModeAwareError]:
            try:
                return self._ask(views.claim(), lambda timeout_ms: message_of(pending, timeout_ms), deadline)
            except ModeAwareError as error:
                if error.code is not ErrorCode.MESSAGE_TOO_LARGE or len(pending) < 2:
                    return dict.fromkeys(pending, error)
            half = len(pending) // 2  # nothing was sent
            return ask(pending[:half]) | ask(pending[half:])

        retrying = Retrying(deadline, RetryPolicy.from_conf(self._conf), sleep=self._given_up.wait)
        return retrying.each(topics, attempt, repeatable=repeatable, settle=settle)

    def _ask(
        self, claim: ClaimRecord | None, message_of: Callable[[int], Any], deadline: Deadline
    ) -> dict[str, TopicResult | ModeAwareError]:
        from modeaware.wire import client, messages

        if claim is None or claim.address is None:
            raise self._unavailable("no controller is running for this cluster")
        left_s = deadline.left_s()
        message = message_of(max(int(left_s * 900), 1))  # it has to answer before we stop waiting for it
        try:
            results = messages.results_of(client.request(self._conf, claim, message, left_s))
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
        code = error.code if error is not None else None
        return ControllerUnavailable(f"{why}; {self._how_to_start()}", code=code)

    def _how_to_start(self) -> str:
        servers = self._conf.get("bootstrap.servers", "HOST:PORT")
        return (
            f"start one with 'modeaware controller --bootstrap-server {servers}', try again in some seconds where "
            "another one stands by, or let a command do its work: shrink, grow and apply with --wait"
        )


class AdminBase(librdkafka_admin.AdminClient):
    """The stock class with our settings taken out, a connection to the controller, and a few threads of its own."""

    def __init__(self, conf: Mapping[str, Any], **kwargs: Any) -> None:
        config, stock_conf = split_client_config(with_process_settings(conf))
        super().__init__({SOFTWARE_NAME: UNDERLYING_NAME, **stock_conf}, **kwargs)
        self._stock_conf = stock_conf
        self._calls = ControllerCalls(stock_conf, config)
        self._pool_lock = Lock()
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Wait for what is on its way to the controller, and give the views back. Idempotent; it can be used again."""
        with self._pool_lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
        self._calls.close()

    def __exit__(self, *exc_info: Any) -> bool | None:
        if isinstance(exc_info[1], KeyboardInterrupt):
            self._calls.give_up()  # it must not be done minutes after Ctrl-C
        self.close()
        return super().__exit__(*exc_info)

    def _futures(
        self, keys: Iterable[Any], work: Callable[[], Mapping[Any, Any]], *, as_stock: bool = False
    ) -> dict[Any, Future[Any]]:
        """Return a future per key (a topic, say), filled from what ``work``, run in another thread, returns or raises.

        An exception among the values fails its own future alone; ``as_stock`` makes ours KafkaExceptions.
        """
        futures: dict[Any, Future[Any]] = {key: Future() for key in keys}
        for future in futures.values():
            future.set_running_or_notify_cancel()
        if futures:
            with self._pool_lock:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="modeaware-admin")
                whole = self._pool.submit(work)
            whole.add_done_callback(partial(_fill, futures, as_stock))
        return futures


def _fill(futures: Mapping[Any, Future[Any]], as_stock: bool, whole: Future[Mapping[Any, Any]]) -> None:
    failure = whole.exception()
    answers = whole.result() if failure is None else dict.fromkeys(futures, failure)
    for topic, future in futures.items():
        unanswered = ModeAwareError(f"topic {topic!r}: the answer does not mention it", topic=str(topic))
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
