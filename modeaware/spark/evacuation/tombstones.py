"""How long a deleted key is known to be deleted."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.config import split_client_config
from modeaware.librdkafka import KafkaException
from modeaware.librdkafka_admin import AdminClient, ConfigResource, ResourceType
from modeaware.modelog.connection import connection_conf

logger = logging.getLogger(__name__)

SETTING = "delete.retention.ms"
_TIMEOUT_S = 10.0


def warn_of_lost_tombstones(
    conf: Mapping[str, Any], topic: str, admitted_ms: int, clock: Clock = SYSTEM_CLOCK
) -> str | None:
    """Warn where a shrink is older than the topic keeps tombstones.

    A key that was deleted since has its tombstone in another partition than its value. When compaction has dropped
    that, nothing tells that the value is none any more: neither a consumer that reads the topic from its start, nor an
    evacuation, which copies it. So an evacuation should run within ``delete.retention.ms`` (24 h) of the shrink.

    Args:
        conf: as for :class:`modeaware.Producer`.
        admitted_ms: when the shrink was admitted.

    Returns:
        The warning, which is logged as well; None: there is no need, or the brokers do not say.
    """
    kept_ms = _kept_ms(conf, topic)
    if kept_ms is None or clock.now_ms() - admitted_ms <= kept_ms:
        return None
    warning = (
        f"{topic}: the shrink was asked for longer ago than {SETTING} ({kept_ms} ms): of a key that was deleted since, "
        "the tombstone may be gone, and then its old value is copied"
    )
    logger.warning("%s", warning)
    return warning


def _kept_ms(conf: Mapping[str, Any], topic: str) -> int | None:
    _, rest = split_client_config(conf)
    asked = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(connection_conf(rest, "evacuate"))  # it has to live until the answer is there
    try:
        entry = admin.describe_configs([asked], request_timeout=_TIMEOUT_S)[asked].result(_TIMEOUT_S).get(SETTING)
    except (KafkaException, TimeoutError) as error:
        logger.info("%s: its %s is not known: %s", topic, SETTING, error)
        return None
    return int(entry.value) if entry is not None and str(entry.value).isdecimal() else None
