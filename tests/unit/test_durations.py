"""Durations in options and files."""

from __future__ import annotations

import re

import pytest

from modeaware.durations import duration_text, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("0s", 0),
        ("500ms", 500),
        ("90s", 90_000),
        ("30m", 1_800_000),
        ("12h", 43_200_000),
        (" 7d ", 604_800_000),
        ("1500ms", 1_500),
        (f"{2**62}ms", 2**62),
    ],
)
def test_duration_has_a_number_and_a_unit(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms
    assert parse_duration_ms(duration_text(duration_ms)) == duration_ms


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0", "'0' has no unit: 0ms, 0s, 0m, 0h or 0d?"),
        ("3600000", "3600000ms"),
        ("", "is not a duration"),
        ("1.5h", "is not a duration"),
        ("-5s", "is not a duration"),
        ("1h30m", "is not a duration"),
        ("2w", "is not a duration"),
        ("12H", "is not a duration"),
        ("soon", "'soon' is not a duration: a whole number and ms, s, m, h or d, such as 90s, 12h or 7d"),
        ("٣s", "is not a duration"),
        (f"{2**62 + 1}ms", "is too long"),
        ("9" * 5_000 + "d", "is too long"),
    ],
)
def test_anything_else_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0s"), (500, "500ms"), (90_000, "90s"), (60_000, "1m"), (43_200_000, "12h"), (172_800_000, "2d")],
)
def test_duration_is_shown_in_its_largest_whole_unit(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
