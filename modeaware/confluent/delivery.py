"""Delivery reports of records that were queued for a topic before another one replaced it.

From the switch on brokers are made to refuse data for the predecessor, which they do with MSG_SIZE_TOO_LARGE. So a
record that was queued earlier, by a producer that was paused since, say, is reported with an error that misleads. Where
the application's callback can be reached it is called with :class:`~modeaware.confluent.errors.ReplacedTopicRefused`
instead. Nothing is sent again by us: an earlier attempt may have been stored.

Callbacks are reached for as long as it costs nothing in between replacements. The configured ``on_delivery`` is called
through a switch, so it is reached whenever its record was queued. The callback of one record is wrapped as it is
queued, from the announcement of the successor until the switch; those of records queued before are called as they are.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from modeaware.confluent.errors import ReplacedTopicRefused
from modeaware.confluent.retarget import Switch
from modeaware.confluent.statistics import delivery_timeout_s
from modeaware.errors import ModeSourceError, TopicReplaced
from modeaware.librdkafka import KafkaError
from modeaware.topic_view import Successor
from modeaware.views.source import Views

logger = logging.getLogger(__name__)

FENCED = KafkaError.MSG_SIZE_TOO_LARGE
"""The code with which brokers refuse data for a topic that was replaced (``lifecycle.replacement.FENCE_CONFIGS``)."""
PATIENCE_S = 3.0
"""How long delivery callbacks wait for the views, after refusals that they do not explain: those of a process that was
suspended may take a moment, too."""
REST_S = 10.0
"""How long none of them waits again after that."""


class Deliveries:
    """The delivery callbacks of one producer. Thread-safe.

    Args:
        conf: the producer's librdkafka settings.

    Attributes:
        views: the producer's share; None until it has one.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self.views: Views | None = None
        self._timeout_s = delivery_timeout_s(conf)
        self._lock = threading.Lock()
        self._announced = False
        self._until_s = -math.inf
        self._asked_s = -math.inf
        self._logged: set[str] = set()
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
                self._until_s = time.monotonic() + self._timeout_s
        self._point()

    def wrapped(self, callback: Any) -> Any:
        """Return what to queue a record with in the place of its ``callback``."""
        return partial(self._report, callback) if callable(callback) else callback

    def _point(self) -> None:
        if self._configured is not None:
            with self._lock:
                is_due = self._announced or time.monotonic() < self._until_s
                self._configured.point_to(self._watched if is_due else self._plain)

    def _report_configured(self, callback: Callable[[Any, Any], Any], error: Any, message: Any) -> Any:
        if not self._announced and time.monotonic() >= self._until_s:
            self._point()
        return self._report(callback, error, message)

    def _report(self, callback: Callable[[Any, Any], Any], error: Any, message: Any) -> Any:
        if error is not None and error.code() == FENCED:
            error = self._explained(error, message)
        return callback(error, message)

    def _explained(self, error: KafkaError, message: Any) -> KafkaError:
        topic, partition = message.topic(), message.partition()
        successor = self._successor(topic)
        if successor is None:
            return error
        replaced = TopicReplaced(
            f"{topic}-{partition}: brokers refused a record, because {topic} was replaced by {successor.topic}. This "
            "attempt has not stored it; where it was a retry, an earlier one may have, and the outcome is unknown. "
            f"Send it again under the same name if it may be stored twice: it goes to {successor.topic}",
            topic=topic,
            partition=partition,
            successor=successor.topic,
        )
        if topic not in self._logged:
            self._logged.add(topic)
            logger.warning("%s (logged once; others of the topic may follow)", replaced)
        return ReplacedTopicRefused(replaced)

    def _successor(self, topic: str) -> Successor | None:
        """Return what has replaced ``topic``; None where nothing has: the record is too large."""
        views = self.views
        successor = None if views is None else views.view(topic).successor
        if views is None or successor is None:
            return None
        views.refresh_soon()
        if not successor.switched and (left_s := self._patience_s()) > 0:
            try:
                views.refresh(left_s)
            except ModeSourceError as error:
                logger.info("%s: it is not known whether it was replaced: %s", topic, error)
            successor = views.view(topic).successor
        return successor if successor is not None and successor.switched else None

    def _patience_s(self) -> float:
        with self._lock:
            now_s = time.monotonic()
            if now_s >= self._asked_s + PATIENCE_S + REST_S:
                self._asked_s = now_s
            return self._asked_s + PATIENCE_S - now_s
