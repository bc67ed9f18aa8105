"""Delivery reports of records that were queued for a topic before another one replaced it.

:mod:`modeaware.clients.refusals` says what brokers do with them. Where the application's callback can be reached it is
called with :class:`~modeaware.confluent.errors.ReplacedTopicRefused`.

Callbacks are reached for as long as it costs nothing in between replacements. The configured ``on_delivery`` is called
through a switch, so it is reached whenever its record was queued. The callback of one record is wrapped as it is
queued, from the announcement of the successor until the switch (in C, where it costs next to nothing); those of records
queued before are called as they are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from modeaware.clients.refusals import Refusals
from modeaware.confluent.errors import ReplacedTopicRefused
from modeaware.confluent.retarget import Switch
from modeaware.confluent.statistics import delivery_timeout_s
from modeaware.errors import TopicReplaced
from modeaware.librdkafka import KafkaError

Report = Callable[[Callable[[Any, Any], Any], Any, Any], Any]
Reported: Any = partial
"""``Reported(report, callback)`` is a delivery callback that calls ``report(callback, error, message)``. In C it calls
``callback`` itself where there is no error."""
with suppress(ImportError):
    from modeaware.confluent import _routed

    Reported = _routed.Reported

FENCED = KafkaError.MSG_SIZE_TOO_LARGE
"""The code with which brokers refuse data for a topic that was replaced (``lifecycle.replacement.FENCE_CONFIGS``)."""


class Deliveries(Refusals):
    """The delivery callbacks of one producer. Thread-safe.

    Args:
        conf: the producer's librdkafka settings.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        super().__init__()
        self._timeout_s = delivery_timeout_s(conf)
        self._announced = False
        self._until_s = -math.inf
        self._awaits_reports = False
        configured: Any = conf.get("on_delivery")
        self._plain = configured
        self._watched: Any = partial(self._report_configured, self._plain) if callable(configured) else None
        self._configured = Switch(configured) if callable(configured) else None

    def settings(self) -> dict[str, Any]:
        """Return what to put in place of the application's own settings."""
        return {} if self._configured is None else {"on_delivery": self._configured.call}

    def follow(self, *, announced: bool, switched: bool) -> None:
        """Views have changed.

        Args:
            announced: some topic is about to be replaced.
            switched: some topic was replaced just now: what was queued for it before has its outcome in time.
        """
        with self._lock:
            self._announced = announced
            if switched:
                self._until_s, self._awaits_reports = time.monotonic() + self._timeout_s, True
        self._point()

    def _point(self) -> None:
        if self._configured is not None:
            with self._lock:
                is_due = self._announced or self._awaits_reports
                self._configured.point_to(self._watched if is_due else self._plain)

    def _report_configured(self, callback: Callable[[Any, Any], Any], error: Any, message: Any) -> Any:
        if self._awaits_reports and time.monotonic() > self._until_s:
            self._settle(message)
        return self.report(callback, error, message)

    def _settle(self, message: Any) -> None:
        """Stop watching once a record is reported that was queued when all earlier ones had their outcome: reports come
        in the order of the outcomes, however late the application polls."""
        queued_ago_s = message.latency()
        with self._lock:
            if queued_ago_s is None or queued_ago_s >= time.monotonic() - self._until_s:
                return
            self._awaits_reports = False
        self._point()

    def report(self, callback: Callable[[Any, Any], Any], error: Any, message: Any) -> Any:
        """Call the ``callback`` of a record that was queued for a topic before another one replaced it."""
        if error is not None and error.code() == FENCED:
            error = self._explained(error, message)
        return callback(error, message)

    def _explained(self, error: KafkaError, message: Any) -> KafkaError:
        replaced = self.explain(message.topic(), message.partition(), TopicReplaced)
        return error if replaced is None else ReplacedTopicRefused(replaced)


def reported(reports: Mapping[str, Report], topic: Any, callback: Any) -> Any:
    """Return what to queue a record under the name ``topic`` with in the place of its ``callback``."""
    report = reports.get(topic) if reports and isinstance(topic, str) else None
    return Reported(report, callback) if report is not None and callable(callback) else callback
