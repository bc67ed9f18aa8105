"""What fuzzing has seen: how many frames, how far they were read, how long they took and how much memory there was."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from modeaware.endpoint import metadata
from modeaware.wire import strict

MOST_CPU_S = 1.0
"""Of one frame. CPU time: whoever else uses the machine shall not look like a hang."""
MOST_PEAK_BYTES = 8_388_608
"""Of one conversation, in Python's own memory."""
MOST_GROWTH_MB = 256
"""Of the whole process, from when it has warmed up; libFuzzer's corpus is in it."""
MOST_GROWTH_BLOCKS = 100_000
"""Python objects that stay, from when it has warmed up."""
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1_048_576


class Finding(Exception):
    """Something that may not happen; the text says what."""


@dataclass
class Tally:
    """Sums, except for what begins with ``most_``.

    Attributes:
        conversations: inputs carried out.
        frames: whole frames handed to a session or a decoder; those of ``client``, ``broker`` and ``decoder``.
        past_header: those of which more than the header was read, at least in part.
        whole: those that were read to their last byte.
        refused_bytes: times the frame reader has refused a stream.
        told: answers to clients; ``closed``: conversations that a session has ended.
        most_cpu_s: of one frame.
        most_peak_bytes: of Python's memory in one conversation, of those that were measured (``measured``).
        most_rss_mb, most_growth_mb, most_growth_blocks: of a process, and since it had warmed up.
        duration_s: of a process.
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
    most_rss_mb: float = 0.0
    most_growth_mb: float = 0.0
    most_growth_blocks: int = 0
    duration_s: float = 0.0

    def saved(self, path: Path, finding: str | None) -> None:
        """Write it to ``path``, in one piece."""
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"finding": finding, "tally": asdict(self)}), encoding="utf-8")
        new.replace(path)


def total(tallies: Iterable[Tally]) -> Tally:
    """Of several processes that ran at once."""
    made = Tally()
    for tally in tallies:
        for each in fields(Tally):
            own: Any = getattr(tally, each.name)
            so_far: Any = getattr(made, each.name)
            highest = each.name.startswith("most_") or each.name == "duration_s"
            setattr(made, each.name, max(own, so_far) if highest else own + so_far)
    return made


class Depth:
    """How often the body of a message began to be read, and was read to its end."""

    def __init__(self) -> None:
        self.entered = 0
        self.ended = 0


@contextmanager
def watched() -> Iterator[Depth]:
    """Watches the two places where bodies are read: the decoders' and the one that splices modes into an answer."""
    depth = Depth()

    def counting(read: Any) -> Any:
        def reading(*arguments: Any, **how: Any) -> Any:
            depth.entered += 1
            result = read(*arguments, **how)
            depth.ended += 1
            return result

        return reading

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict, "read_message", counting(strict.read_message))
        patch.setattr(metadata, "with_modes", counting(metadata.with_modes))
        yield depth


class Memory:
    """Samples the process. The first sample is what others are compared with."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._rss_mb: float | None = None
        self._blocks = 0

    def sample(self) -> None:
        """
        Raises:
            Finding: it has grown too much.
        """
        rss_mb, blocks = _rss_mb(), sys.getallocatedblocks()
        if self._rss_mb is None:
            gc.collect()
            self._rss_mb, self._blocks = rss_mb, sys.getallocatedblocks()
        elif blocks - self._blocks > MOST_GROWTH_BLOCKS:
            gc.collect()
            blocks = sys.getallocatedblocks()
        tally = self._tally
        tally.most_rss_mb = max(tally.most_rss_mb, rss_mb)
        tally.most_growth_mb = max(tally.most_growth_mb, rss_mb - self._rss_mb)
        tally.most_growth_blocks = max(tally.most_growth_blocks, blocks - self._blocks)
        if tally.most_growth_mb > MOST_GROWTH_MB or tally.most_growth_blocks > MOST_GROWTH_BLOCKS:
            raise Finding(f"the process grew by {tally.most_growth_mb:.0f} MB and {tally.most_growth_blocks} blocks")


def _rss_mb() -> float:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_MB
