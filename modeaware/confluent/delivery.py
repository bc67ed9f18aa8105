"""Delivery reports of records that were queued for a topic before its replacement.

:mod:`modeaware.clients.refusals` explains why brokers reject these records. If this module has wrapped the
application's callback, the callback gets a :class:`~modeaware.confluent.errors.ReplacedTopicRefused`.

Wrapping must cost nothing between replacements. The configured ``on_delivery`` is called through a
:class:`~modeaware.confluent.retarget.Switch`, so it can be wrapped at any time. A callback that is passed with a single
record can only be wrapped when the record is queued. This is done from the announcement of the new topic until the
moment at which producers switch (in C, at almost no cost). Such a callback gets the brokers' error unchanged if its
record was queued before the announcement.
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
"""``Reported(report, callback)`` is a delivery callback that calls ``report(callback, error, message)``. The class in C
calls ``callback`` directly if there is no error."""
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
        self._reported: Any = Reported(self.report, self._plain) if callable(configured) else None
        self._configured = Switch(configured) if callable(configured) else None

    def settings(self) -> dict[str, Any]:
        """Return the settings that replace the application's own."""
        return {} if self._configured is None else {"on_delivery": self._configured.call}

    def follow(self, *, announced: bool, switched: bool) -> None:
        """Note that views have changed.

        Args:
            announced: some topic is about to be replaced.
            switched: some topic was replaced just now. Earlier records have their outcomes within the delivery timeout.
        """
        with self._lock:
            self._announced = announced
            if switched:
                self._until_s, self._awaits_reports = time.monotonic() + self._timeout_s, True
        self._point()

    def _point(self) -> None:
        if self._configured is not None:
            with self._lock:
                announced = self._reported if self._announced else self._plain
                self._configured.point_to(self._watched if self._awaits_reports else announced)

    def _report_configured(self, callback: Callable[[Any, Any], Any], error: Any, message: Any) -> Any:
        if self._awaits_reports and time.monotonic() > self._until_s:
            self._stop_when_reported(message)
        return self.report(callback, error, message)

    def _stop_when_reported(self, message: Any) -> None:
        """Stop watching if all records from before the switch had their outcomes when ``message`` was queued. Reports
        arrive in the order of the outcomes, however late the application polls."""
        queued_ago_s = message.latency()
        with self._lock:
            if queued_ago_s is None or queued_ago_s >= time.monotonic() - self._until_s:
                return
            self._awaits_reports = False
        self._point()

    def report(self, callback: Callable[[Any, Any], Any], error: Any, message: Any) -> Any:
        """Call the ``callback`` of a record that was queued for a topic before its replacement."""
        if error is not None and error.code() == FENCED:
            error = self._explained(error, message)
        return callback(error, message)

    def _explained(self, error: KafkaError, message: Any) -> KafkaError:
        replaced = self.explain(message.topic(), message.partition(), TopicReplaced)
        return error if replaced is None else ReplacedTopicRefused(replaced)


def reported(reports: Mapping[str, Report], topic: Any, callback: Any) -> Any:
    """Return the callback for a record under the name ``topic``: ``callback``, wrapped if ``reports`` requires it."""
    report = reports.get(topic) if reports and isinstance(topic, str) else None
    return Reported(report, callback) if report is not None and callable(callback) else callback
