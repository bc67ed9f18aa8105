"""The interim topic of a replacement that keeps its name (:mod:`modeaware.lifecycle.keep_name`): what it is called."""

from __future__ import annotations

import re
import zlib

_SUFFIX = re.compile(r"\.modeaware-[0-9a-f]{4}\Z")


def interim_name(topic: str, topic_id: str) -> str:
    """Return the name of the interim topic: ``orders.modeaware-3fa9``. It begins with the kept name, so prefixed ACLs
    cover it; its end is a hash of the old topic's id, so that a repeated request names the same topic."""
    return f"{topic}.modeaware-{zlib.crc32(topic_id.encode()) & 0xFFFF:04x}"


def is_interim_of(topic: str, kept: str) -> bool:
    """Return whether ``topic`` is called as an interim topic of ``kept`` is."""
    return kept_name(topic) == kept


def kept_name(topic: str) -> str | None:
    """Return the name that is kept where ``topic`` is called as an interim topic is; else None."""
    match = _SUFFIX.search(topic)
    return topic[: match.start()] if match is not None else None
