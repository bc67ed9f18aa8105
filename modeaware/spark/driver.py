"""What the driver has to know before it plans a job: the modes of a topic, asked anew."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from modeaware.config import split_client_config
from modeaware.errors import ClusterError, ErrorCode, ModeSourceError, ViewTimeout
from modeaware.librdkafka import Consumer, KafkaException
from modeaware.modelog.connection import connection_conf
from modeaware.spark.kept_views import kept_views
from modeaware.topic_view import TopicView

logger = logging.getLogger(__name__)

METADATA_TIMEOUT_S = 30.0


def topic_view(conf: Mapping[str, Any], topic: str) -> TopicView:
    """The view of ``topic`` that is in force now, of the topic that has the name now (invariant I8): all that the mode
    source held when this was called is in it.

    A job does not go on with the last view by itself, as a client does: a driver that just started has none. So where
    the source cannot be read within ``modeaware.view.timeout.ms``, ``modeaware.on.unknown`` decides: ``writable`` takes
    the last view, or every partition as ReadWrite where there is none; ``block`` and ``error`` raise.

    Args:
        conf: as for :class:`modeaware.Producer`.

    Raises:
        ViewTimeout: the modes are not known; nothing was read or written.
        ConfigError: a ``modeaware.`` setting is unknown or has a bad value.
    """
    config, rest = split_client_config(conf)
    timeout_s = config.view_timeout_ms / 1000
    views = kept_views(rest, config)
    failure: Exception | None = None
    if views.wait_ready(timeout_s):
        try:
            views.refresh(timeout_s)
            views.verify(topic)
            return views.view(topic)
        except ModeSourceError as error:
            failure = error
    if config.on_unknown == "writable":
        views.verify(topic)
        view = views.view(topic) if views.wait_ready(0) else TopicView.unlisted(topic)
        logger.warning("the modes cannot be read (%s); going on with %s", failure or views.error(), view.describe())
        return view
    raise ViewTimeout(
        f"{topic}: no view of the partition modes within {config.view_timeout_ms} ms (modeaware.view.timeout.ms): "
        f"{failure or views.error() or 'no answer'}. With modeaware.on.unknown=writable the last one counts, or every "
        "partition as writable",
        topic=topic,
    ) from failure


def partition_ids(conf: Mapping[str, Any], topic: str) -> list[int]:
    """The partitions the cluster has of ``topic``, ascending, whatever their modes.

    Raises:
        ClusterError: no broker answered, or the topic is not there (code UNKNOWN_TOPIC_OR_PARTITION).
    """
    _, rest = split_client_config(conf)
    # A consumer, which never joins its group: a producer's or an admin client's question creates a missing topic.
    asking = Consumer({**connection_conf(rest, "spark"), "group.id": "modeaware-spark"})
    try:
        with closing(asking):
            found = asking.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics[topic]
    except KafkaException as error:
        raise ClusterError(
            f"cannot describe topic {topic!r}: {error.args[0].str()}", code=ErrorCode.REQUEST_TIMED_OUT, topic=topic
        ) from error
    if found.error is not None or not found.partitions:
        raise ClusterError(
            f"topic {topic!r} is not there, or may not be described: {found.error or 'it has no partition'}",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            topic=topic,
        )
    return sorted(found.partitions)
