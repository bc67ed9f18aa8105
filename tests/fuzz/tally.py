"""What fuzzing has seen: how many frames, how far they were read, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import pytest

from modeaware.endpoint import metadata
from modeaware.wire import strict


class Finding(Exception):
    """Something that may not happen; the text says what."""


@dataclass
class Tally:
    """Sums, except for what begins with ``most_``.

    Attributes:
        conversations: inputs carried out; ``closed``: those that a session has ended.
        frames: whole frames handed to a session or a decoder; those of ``client``, ``broker`` and ``decoder``.
        past_header: those of which more than the header was read, at least in part; ``whole``: to the last byte.
        refused_bytes: times the frame reader has refused a stream.
        told: answers to clients.
        measured: conversations whose memory was measured; ``most_peak_bytes``: of Python's memory in one of them.
        most_cpu_s: of one frame.
        most_growth_blocks: Python objects that stayed, since a process had warmed up.
        most_rss_mb, most_duration_s: of a process.
    """

    conversations: int = 0
    frames: int = 0
    client: int = 0
    broker: int = 0
    decoder: int = 0
    past_header: int = 0
    whole: int = 0
    refused_bytes: int = 0
    told: int = 0
    closed: int = 0
    measured: int = 0
    most_cpu_s: float = 0.0
    most_peak_bytes: int = 0
    most_growth_blocks: int = 0
    most_rss_mb: float = 0.0
    most_duration_s: float = 0.0


def total(tallies: Iterable[Tally]) -> Tally:
    """Of several processes that ran at once."""
    made = Tally()
    for tally in tallies:
        for each in fields(Tally):
            both: list[Any] = [getattr(made, each.name), getattr(tally, each.name)]
            setattr(made, each.name, max(both) if each.name.startswith("most_") else sum(both))
    return made


@contextmanager
def watched() -> Iterator[Counter[str]]:
    """Counts how often the body of a message began to be read (``entered``) and was read to its end (``ended``), by the
    decoders or by what splices modes into an answer."""
    depth = Counter[str]()

    def counting(read: Any) -> Any:
        def reading(*arguments: Any, **how: Any) -> Any:
            depth["entered"] += 1
            result = read(*arguments, **how)
            depth["ended"] += 1
            return result

        return reading

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict, "read_message", counting(strict.read_message))
        patch.setattr(metadata, "with_modes", counting(metadata.with_modes))
        yield depth
