"""When a rule ends, as a person writes it."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from modeaware.lifecycle.group_rules import LATEST_MS

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d+)([smhdw])")
_FORMS = "a duration (90s, 30m, 12h, 7d, 2w) or an ISO time (2030-01-31T18:00:00Z; UTC where it names no zone)"


def expiry(text: str, now_ms: int) -> int:
    """The time in ms since the epoch: a duration from now, or an ISO time.

    Raises:
        ValueError: it is neither, or not in the future.
    """
    if found := _DURATION.fullmatch(text.strip()):
        expires_ms = now_ms + int(found[1]) * _UNITS_MS[found[2]]
    else:
        expires_ms = _iso_ms(text.strip())
    if expires_ms <= now_ms:
        raise ValueError(f"{text!r} is not in the future")
    if expires_ms > LATEST_MS:
        raise ValueError(f"{text!r} is beyond the year 9999")
    return expires_ms


def _iso_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not {_FORMS}") from None
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
