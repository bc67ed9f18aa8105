"""Files of settings, as Kafka's own tools read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from modeaware.errors import ConfigError


def read_properties(path: Path) -> dict[str, str]:
    """A Java properties file, as far as Kafka's tools need it.

    ``key=value``, comments with ``#`` or ``!``, and lines that go on after a ``\\`` at their end.

    Raises:
        ConfigError: the file cannot be read, or a line is neither.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # a BOM would be a part of the first key
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    settings = {}
    for number, line in _logical_lines(text):
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            # Not the line itself: it may hold a password.
            raise ConfigError(f"{path}, line {number} is not key=value")
        settings[key.strip()] = value.strip()
    return settings


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    begun, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not begun and (not line or line[0] in "#!"):
            continue
        start = start if begun else number
        begun += line
        if begun.endswith("\\"):
            begun = begun[:-1]
            continue
        yield start, begun
        begun = ""
    if begun:
        yield start, begun
