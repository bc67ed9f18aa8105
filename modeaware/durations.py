"""Durations as people write them in options and files: ``500ms``, ``90s``, ``30m``, ``12h``, ``7d``.

Settings and configs whose names end in ``.ms``, and the options of ``modeaware topics``, have Kafka's form instead: a
number of milliseconds.
"""

from __future__ import annotations

import re

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION = re.compile(r"(\d+)(ms|[smhd])", re.ASCII)
_MOST_MS = 2**62
"""The longest duration: added to the time of a request, it still fits into 64 bits."""


def parse_duration_ms(text: str) -> int:
    """Return a duration in milliseconds.

    Raises:
        ValueError: not a whole number with a unit of ms, s, m, h or d; or more than 2^62 ms.
    """
    text = text.strip()
    if match := _DURATION.fullmatch(text):
        if len(match[1]) < 20 and (duration_ms := int(match[1]) * _UNITS_MS[match[2]]) <= _MOST_MS:
            return duration_ms
        raise ValueError(f"{text!r} is too long")
    if text.isdecimal():
        raise ValueError(f"{text!r} has no unit: {text}ms, {text}s, {text}m, {text}h or {text}d?")
    raise ValueError(f"{text!r} is not a duration: a whole number and ms, s, m, h or d, such as 90s, 12h or 7d")


def duration_text(duration_ms: int) -> str:
    """Return a duration as text for :func:`parse_duration_ms`, in the largest unit that divides the duration."""
    unit = next(unit for unit, ms in _UNITS_MS.items() if duration_ms % ms == 0) if duration_ms else "s"
    return f"{duration_ms // _UNITS_MS[unit]}{unit}"


def duration_ms(text: str) -> int:
    """Parse a duration by :func:`parse_duration_ms`, with the error that argparse expects of a type."""
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise _argument_error(str(error)) from None


def duration_above_zero_ms(text: str) -> int:
    """Parse a duration above 0, with the error that argparse expects of a type."""
    if (parsed_ms := duration_ms(text)) == 0:
        raise _argument_error(f"{text} is not above 0")
    return parsed_ms


def _argument_error(text: str) -> Exception:
    from argparse import ArgumentTypeError  # not at the top: records need durations, but clients need no argparse

    return ArgumentTypeError(text)
