r"""Names and texts of the cluster, made safe for people to read.

A group id, a member id or the reason of a waiver may hold any character: ESC sequences that move a terminal's cursor, a
line end that forges a line of a report, a right-to-left override that shows a name backwards. :func:`printable` shows
each such character as its escape (``\x1b``, ``\n``, ``\u202e``). Text is escaped where it is shown, so names stay exact
inside the program:

- errors: :class:`~modeaware.errors.ModeAwareError` escapes its message;
- logs: :func:`escape_logs`, for every logger below ``modeaware``;
- output of commands: :func:`printable_lines` escapes the lines that it joins, :func:`table` the cells that it aligns;
  ``tell`` and the displays of progress escape what they print;
- HTML: jinja2 in :mod:`modeaware.plan.html` escapes values; ``shown`` in ``topic.js`` does so for the status page.

JSON stays exact: it has escapes of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import chain


class Printable(str):
    """Text that :func:`printable` does not change: it is escaped already; line ends in it are intended."""

    __slots__ = ()


def printable(text: object) -> Printable:
    r"""Return ``text`` with an escape for every character that is not printable.

    By :meth:`str.isprintable`, not printable are control characters (C0, DEL, C1), format characters (bidirectional
    controls, zero-width characters), surrogates, unassigned characters, and all separators but the space. A backslash
    is not escaped.
    """
    if isinstance(text, Printable):
        return text
    plain = str(text)
    if plain.isprintable():
        return Printable(plain)
    return Printable("".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in plain))


def printable_lines(lines: Iterable[object]) -> Printable:
    """Return ``lines`` joined by line ends, each made :func:`printable`."""
    return Printable("\n".join(printable(line) for line in lines))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Iterable[str] = ()) -> list[str]:
    """Return aligned columns of printable text, two spaces apart; columns named in ``right`` are right-aligned."""
    lines = [[printable(cell) for cell in row] for row in chain([headings], rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    to_right = [heading in set(right) for heading in headings]
    shown = []
    for line in lines:
        cells = zip(line, widths, to_right, strict=True)
        shown.append("  ".join(cell.rjust(n) if at_right else cell.ljust(n) for cell, n, at_right in cells).rstrip())
    return shown


def number(value: float) -> str:
    """Return a number, rounded and with separated thousands: ``1 234 567``."""
    return f"{round(value):,}".replace(",", " ")


class _Escaping(logging.Handler):
    """Escapes a log record's message before the handlers of parent loggers get the record. Writes nothing itself."""

    def handle(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            return True  # the arguments do not fit the format: each handler reports that itself
        if not message.isprintable():
            record.msg, record.args = printable(message), ()
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not self._has_others(record.name):
            last.handle(record)  # logging uses lastResort only without a handler, and this object is a handler
        return True

    def _has_others(self, name: str) -> bool:
        """Whether a handler other than this one gets the records of a logger."""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


def escape_logs() -> None:
    """Escape the messages of all loggers below ``modeaware``, whatever handlers the application adds. Idempotent."""
    logger = logging.getLogger("modeaware")
    if not any(isinstance(handler, _Escaping) for handler in logger.handlers):
        logger.handlers.insert(0, _Escaping())  # before the application's own on this logger
