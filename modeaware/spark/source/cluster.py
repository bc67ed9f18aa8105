"""What a reader of ``format("modeaware")`` asks the cluster, with connections that it keeps."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from modeaware.config import split_client_config
from modeaware.errors import ClusterError, ErrorCode, ModeSourceError, ViewTimeout
from modeaware.librdkafka import Consumer, KafkaException, TopicPartition
from modeaware.librdkafka_admin import AdminClient, IsolationLevel, OffsetSpec, TopicCollection
from modeaware.modelog.connection import connection_conf
from modeaware.topic_view import TopicView
from modeaware.views.registry import acquire
from modeaware.views.source import VERIFY_TIMEOUT_S
from modeaware.views.topic_ids import TopicIdUnknown, id_from

logger = logging.getLogger(__name__)

TIMEOUT_S = 30.0


def reading_conf(conf: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    """Settings of a consumer that is assigned its partitions, joins no group and commits nothing.

    Args:
        conf: as for :class:`modeaware.Consumer`.
        strict: whether it is an error when records are gone; otherwise it goes on with the first that is there.
    """
    _, rest = split_client_config(conf)
    return {
        "group.id": f"modeaware-spark-{uuid.uuid4().hex}",  # librdkafka wants one
        **rest,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        "auto.offset.reset": "error" if strict else "earliest",
    }


class TopicCluster:
    """One topic on its cluster: partitions, modes, log starts and ends. Use it from one thread.

    Args:
        conf: as for :class:`modeaware.Consumer`. With ``isolation.level`` ``read_committed``, librdkafka's default, a
            log ends before the first open transaction.

    Raises:
        ConfigError, KafkaException: a setting is unknown, or has a bad value.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str) -> None:
        self.topic = topic
        self._config, rest = split_client_config(conf)
        self._views = acquire(rest, self._config)
        connection = connection_conf(rest, "spark-source")
        # A consumer with all settings, so that a bad one is told here and not by each executor. (An admin client's
        # question would create a missing topic.)
        self._asking = Consumer(reading_conf(conf, strict=True))
        self._admin = AdminClient(connection)
        committed = rest.get("isolation.level", "read_committed") == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def view(self) -> TopicView:
        """The modes in force now of the topic that has the name now; where their source is out of reach, the last that
        are known.

        Raises:
            ViewTimeout: none are known within ``modeaware.view.timeout.ms``, and ``modeaware.on.unknown`` is not
                ``writable``.
        """
        timeout_s = self._config.view_timeout_ms / 1000
        if not self._views.wait_ready(timeout_s):
            if self._config.on_unknown == "writable":
                return TopicView.unlisted(self.topic)
            raise ViewTimeout(
                f"{self.topic}: no view of the partition modes within {self._config.view_timeout_ms} ms "
                f"(modeaware.view.timeout.ms): {self._views.error() or 'no answer'}",
                topic=self.topic,
            )
        try:
            self._views.refresh(timeout_s)
        except ModeSourceError as error:
            logger.warning("%s: going on with the partition modes that are known: %s", self.topic, error)
        self._views.verify([self.topic], VERIFY_TIMEOUT_S)
        return self._views.view(self.topic)

    def partitions(self) -> list[int]:
        """The partitions the cluster has of the topic, whatever their modes, ascending.

        Raises:
            ClusterError: no broker answered, or the topic is not there.
        """
        try:
            found = self._asking.list_topics(self.topic, timeout=TIMEOUT_S).topics[self.topic]
        except KafkaException as error:
            raise self._error("cannot be described", error) from error
        if found.error is not None or not found.partitions:
            raise ClusterError(
                f"topic {self.topic!r} is not there, or may not be described: {found.error or 'it has no partition'}",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                topic=self.topic,
            )
        return sorted(found.partitions)

    def topic_id(self) -> str | None:
        """The topic's id (Kafka's base64 form); None where no broker tells it."""
        asked = self._admin.describe_topics(TopicCollection([self.topic]), request_timeout=TIMEOUT_S)
        try:
            return id_from(asked[self.topic], TIMEOUT_S + 5)
        except TopicIdUnknown as error:
            logger.warning("%s: its topic id is not known: %s", self.topic, error)
            return None

    def starts(self, partitions: Iterable[int]) -> dict[int, int]:
        """Log start offsets.

        Raises:
            ClusterError: a leader did not answer.
        """
        return self._offsets(partitions, OffsetSpec.earliest())

    def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Log end offsets, by the isolation level.

        Raises:
            ClusterError: a leader did not answer.
        """
        return self._offsets(partitions, OffsetSpec.latest())

    def close(self) -> None:
        """Give the connections back. Idempotent."""
        self._views.close()
        with suppress(RuntimeError):  # closed already
            self._asking.close()

    def _offsets(self, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, int]:
        asked = {TopicPartition(self.topic, p): spec for p in partitions}
        if not asked:
            return {}
        try:
            answers = self._admin.list_offsets(asked, isolation_level=self._isolation, request_timeout=TIMEOUT_S)
            return {place.partition: future.result(TIMEOUT_S + 5).offset for place, future in answers.items()}
        except KafkaException as error:
            raise self._error("has offsets that cannot be read", error) from error
        except TimeoutError as error:
            raise ClusterError(
                f"topic {self.topic!r}: no answer about its offsets", code=ErrorCode.REQUEST_TIMED_OUT, topic=self.topic
            ) from error

    def _error(self, what: str, error: KafkaException) -> ClusterError:
        return ClusterError(
            f"topic {self.topic!r} {what}: {error.args[0].str()}", code=ErrorCode.REQUEST_TIMED_OUT, topic=self.topic
        )
