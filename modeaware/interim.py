"""The name of the *interim topic*. To keep a topic's name, the interim topic replaces the topic, and then a new topic
with the *kept name* replaces the interim topic (:mod:`modeaware.lifecycle.keep_name`)."""

from __future__ import annotations

import re
import zlib

_SUFFIX = re.compile(r"\.modeaware-[0-9a-f]{4}\Z")


def interim_name(topic: str, topic_id: str) -> str:
    """Return the name of the interim topic: ``orders.modeaware-3fa9``. The name begins with the kept name, so that
    prefixed ACLs apply. It ends with a hash of the old topic's id, so that a repeated request gives the same name."""
    return f"{topic}.modeaware-{zlib.crc32(topic_id.encode()) & 0xFFFF:04x}"


def is_interim_of(topic: str, kept: str) -> bool:
    """Return whether ``topic`` has the form of an interim topic's name, for the kept name ``kept``."""
    return kept_name(topic) == kept


def kept_name(topic: str) -> str | None:
    """Return the kept name in ``topic``, or None if ``topic`` does not have the form of an interim topic's name."""
    match = _SUFFIX.search(topic)
    return topic[: match.start()] if match is not None else None
