"""The brokers' rejection of a record that was queued for an old topic before the switch.

After the switch, the *fence* (configs of the old topic) makes brokers reject the topic's data with MSG_SIZE_TOO_LARGE.
So a record that was queued before, for example by a producer that was then suspended, is rejected with a misleading
error. The client does not send the record again, because an earlier attempt may have stored the record.
"""

from __future__ import annotations

import math
import time
from typing import TypeVar

from modeaware.callouts import InnerLock, get_logger
from modeaware.errors import ModeSourceError, TopicReplaced
from modeaware.topic_view import ReplacedBy
from modeaware.views.source import Views

logger = get_logger(__name__)

E = TypeVar("E", bound=TopicReplaced)

PATIENCE_S = 3.0
"""How long the report of a rejection waits for new views if the present views do not explain the rejection. Views may
be late, for example in a process that was suspended."""
REST_S = 10.0
"""How long no other report waits after such a wait."""


class Refusals:
    """The rejections of one producer's records. Thread-safe.

    Attributes:
        views: the producer's share of the views, or None until it has one.
    """

    def __init__(self, views: Views | None = None) -> None:
        self.views = views
        self._lock = InnerLock()
        self._asked_s = -math.inf
        self._logged: set[str] = set()

    def explain(self, topic: str, partition: int, kind: type[E]) -> E | None:
        """Return the error to report for a record that brokers rejected as too large. Return None if the record itself
        is too large, or the cause is unknown. This method may wait for new views.

        Args:
            kind: the client library's own class of the error.
        """
        try:
            new_topic = self._new_topic(topic)
        except Exception:  # whatever has failed, the rejection has to be reported
            logger.exception("%s-%d: brokers rejected a record, and the cause could not be found", topic, partition)
            return None
        if new_topic is None:
            return None
        error = kind(
            f"{topic}-{partition}: brokers rejected a record, because {topic} was replaced by {new_topic.topic}. This "
            "attempt has not stored the record. If this attempt was a retry, an earlier one may have stored the "
            "record: the outcome is unknown. If a duplicate does no harm, send the record again under the same name; "
            f"the record then goes to {new_topic.topic}",
            topic=topic,
            partition=partition,
            new_topic=new_topic.topic,
        )
        if topic not in self._logged:
            self._logged.add(topic)
            logger.warning("%s (logged once; further records of the topic may be rejected)", error)
        return error

    def may_be_fenced(self, topic: str) -> bool:
        """Return whether ``topic`` is an old topic, so that its fence may be the cause of a rejection."""
        return self.views is not None and self.views.view(topic).replaced_by is not None

    def _new_topic(self, topic: str) -> ReplacedBy | None:
        """Return the new topic that has replaced ``topic``. If there is none (the record is too large), return None."""
        views = self.views
        new_topic = None if views is None else views.view(topic).replaced_by
        if views is None or new_topic is None:
            return None
        views.refresh_soon()
        if not new_topic.switched and (left_s := self._patience_s()) > 0:
            try:
                views.refresh(left_s)
            except ModeSourceError as error:
                logger.info("%s: it is unknown whether the topic was replaced: %s", topic, error)
            new_topic = views.view(topic).replaced_by
        return new_topic if new_topic is not None and new_topic.switched else None

    def _patience_s(self) -> float:
        with self._lock:
            now_s = time.monotonic()
            if now_s >= self._asked_s + PATIENCE_S + REST_S:
                self._asked_s = now_s
            return self._asked_s + PATIENCE_S - now_s
