"""Publishes how far readers have come that belong to no consumer group: as committed offsets of a group in their name,
which a drain waits for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from modeaware.config import split_client_config
from modeaware.confluent.admin import AdminClient
from modeaware.errors import ErrorCode, ModeAwareError
from modeaware.librdkafka import Consumer, KafkaException, TopicPartition
from modeaware.modelog.connection import shared_settings
from modeaware.modelog.group_rules import REQUIRE, GroupRule
from modeaware.spark.read.positions import Positions

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 20.0
FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
REPEAT_WARNING_S = 600.0
"""How often a failure is told that goes on unchanged."""


class Registrar:
    """Keeps rules that require groups (``modeaware groups require``). Use it from one thread at a time.

    Args:
        conf: as for :class:`modeaware.Consumer`.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        _, rest = split_client_config(conf)
        ours = {name: value for name, value in conf.items() if name not in rest}
        self._admin = AdminClient({**shared_settings(rest), **ours, "log_level": 0})
        self._done: set[tuple[str, str]] = set()

    def require(self, group: str, topics: Iterable[str], reason: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """See to it that drains of ``topics`` wait for ``group``: a rule that is there already is left as it is, and
        one that was made through this object is not looked for again.

        Raises:
            ModeAwareError: no controller could be asked, or it refused.
        """
        missing = [topic for topic in topics if (group, topic) not in self._done]
        if not missing:
            return
        there = _answer(self._admin.describe_group_rules(timeout_s), timeout_s)
        kept = {rule.topic for rule in there if (rule.kind, rule.group) == (REQUIRE, group) and rule.expires_ms is None}
        now_ms = time.time_ns() // 1_000_000
        add = [GroupRule(REQUIRE, group, topic, reason, now_ms) for topic in missing if topic not in kept]
        if add:
            _answer(self._admin.alter_group_rules(add, request_timeout=timeout_s), timeout_s)
        self._done.update((group, topic) for topic in missing)

    def close(self) -> None:
        """Give the connections back. Idempotent."""
        self._admin.close()


class Publisher:
    """Commits offsets for groups without members, and has these groups required, in a thread of its own.

    What cannot be published is logged and tried again until it can, or until newer offsets take its place. All methods
    may be called from any thread; only :meth:`flush` and :meth:`close` block.

    Args:
        conf: as for :class:`modeaware.Consumer`; ``group.id`` and everything about consuming are passed over.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        _, rest = split_client_config(conf)
        self._settings = {**shared_settings(rest), "enable.auto.commit": False, "log_level": 0}
        self._registrar = Registrar(conf)
        self._registering = threading.Lock()
        self._consumers: dict[str, Consumer] = {}
        self._turn = threading.Condition()
        self._pending: dict[str, Positions] = {}
        self._reasons: dict[str, str] = {}
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._told: dict[str, tuple[str, float]] = {}

    def publish(self, group: str, positions: Positions, reason: str) -> None:
        """Publish ``positions`` soon, as the offsets of ``group``; ``reason`` stands in the rule that requires it."""
        with self._turn:
            if self._closed:
                return
            self._pending.setdefault(group, {}).update(positions)
            self._reasons[group] = reason
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="modeaware-spark-progress", daemon=True)
                self._thread.start()
            self._turn.notify_all()

    def require(self, group: str, topics: Iterable[str], reason: str, timeout_s: float) -> None:
        """As :meth:`Registrar.require`, now."""
        with self._registering:
            self._registrar.require(group, topics, reason, timeout_s)

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything is published, and say whether it is."""
        with self._turn:
            return self._turn.wait_for(lambda: not self._pending and not self._busy, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Publish what is left, for at most ``timeout_s`` seconds, and end. Idempotent."""
        if not self.flush(timeout_s):
            with self._turn:
                logger.warning("what was read of %s is not published: no time is left", sorted(self._pending))
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
        while self._consumers:
            self._consumers.popitem()[1].close()
        self._registrar.close()

    def _run(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._pending or self._closed)
                if self._closed:
                    return
                taken, self._pending, self._busy = self._pending, {}, True
            failed = {group: positions for group, positions in taken.items() if not self._publish(group, positions)}
            with self._turn:
                for group, positions in failed.items():
                    self._pending[group] = positions | self._pending.get(group, {})
                self._busy = False
                self._turn.notify_all()
                if failed:
                    self._turn.wait(retry_s)
                retry_s = min(retry_s * 2, LONGEST_RETRY_S) if failed else FIRST_RETRY_S

    def _publish(self, group: str, positions: Positions) -> bool:
        """Whether both is done: the rule first, so that no drain misses the group once its offsets can be seen. Where
        there is no rule to be had the offsets are committed all the same: controllers see them."""
        failures = []
        try:
            self.require(group, positions, self._reasons[group], REQUEST_TIMEOUT_S)
        except (ModeAwareError, RuntimeError) as error:  # the latter where the interpreter ends: no new threads then
            failures.append(f"it is not registered, so a drain may overlook it: {error}")
        try:
            self._commit(group, positions)
        except KafkaException as error:
            failures.append(f"its offsets are not committed, so drains wait: {error.args[0].str()}")
            with suppress(KeyError):
                self._consumers.pop(group).close()
        self._tell(group, "; ".join(failures))
        return not failures

    def _commit(self, group: str, positions: Positions) -> None:
        consumer = self._consumers.get(group)
        if consumer is None:
            consumer = self._consumers[group] = Consumer({**self._settings, "group.id": group})
        offsets = [TopicPartition(t, p, offset) for t, each in positions.items() for p, offset in each.items()]
        for done in consumer.commit(offsets=offsets, asynchronous=False) or ():
            if done.error is not None:
                raise KafkaException(done.error)

    def _tell(self, group: str, failure: str) -> None:
        last, at_s = self._told.get(group, ("", 0.0))
        now_s = time.monotonic()
        if failure and (failure != last or now_s - at_s > REPEAT_WARNING_S):
            logger.warning("the progress of %s is not published: %s. It is tried again", group, failure)
            self._told[group] = (failure, now_s)
        elif last and not failure:
            logger.warning("the progress of %s is published again", group)
            del self._told[group]


def _answer(future: Future[Any], timeout_s: float) -> Any:
    try:
        error = future.exception(timeout_s + 5)
    except TimeoutError as late:
        raise ModeAwareError("the controller did not answer in time", code=ErrorCode.REQUEST_TIMED_OUT) from late
    if error is None:
        return future.result()
    if isinstance(error, ModeAwareError):
        raise error
    raise ModeAwareError(f"the request could not be made: {type(error).__name__}: {error}") from error
