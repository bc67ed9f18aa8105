"""One fuzzing process: atheris, from the corpus in a folder, for some seconds or until something is found."""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

import atheris

# What is instrumented has to be imported under it, first of all.
with atheris.instrument_imports(include=["modeaware.endpoint", "modeaware.wire"], enable_loader_override=False):
    from tests.fuzz.play import Player

from tests.fuzz.events import mutated
from tests.fuzz.seeds import seeds, spare
from tests.fuzz.tally import watched

MOST_BYTES = 6_000
HANG_S = 60
"""libFuzzer ends a process whose input never returns; one that does is judged by its CPU time."""
_SAVED_EVERY = 2_000


class Run:
    """Plays inputs and keeps the report up to date."""

    def __init__(self, player: Player, args: argparse.Namespace) -> None:
        self._player = player
        self._report: Path = args.report
        self._findings: Path = args.findings
        self._start_s = time.monotonic()
        self._end_s = self._start_s + args.seconds

    def input(self, data: bytes) -> None:
        """One input; the process ends here with the time, or with a finding."""
        try:
            self._player.play(data)
        except Exception:  # noqa: BLE001 - that is what is looked for; the process ends with it
            self._found(data, traceback.format_exc())
        if self._player.tally.conversations % _SAVED_EVERY == 0:
            self._save(None)
        if time.monotonic() >= self._end_s:
            self._save(None)
            os._exit(0)

    def _found(self, data: bytes, text: str) -> NoReturn:
        path = self._findings / hashlib.sha256(data).hexdigest()[:16]
        path.write_bytes(data)
        self._save(f"{path}: {text}")
        os._exit(1)

    def _save(self, finding: str | None) -> None:
        self._player.tally.duration_s = time.monotonic() - self._start_s
        self._player.tally.saved(self._report, finding)


SPARE = spare()


def mutate(data: bytes, most_bytes: int, seed: int) -> bytes:
    """libFuzzer's own changes, within the form of a conversation."""

    def change(part: bytes) -> bytes:
        return bytes(atheris.Mutate(part, len(part) + 64)) if part else b"\0"

    return mutated(data, most_bytes, random.Random(seed), change, SPARE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--findings", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    for data in seeds():
        (args.corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    options = [
        f"-max_len={MOST_BYTES}",
        "-len_control=0",
        f"-timeout={HANG_S}",
        "-rss_limit_mb=2048",
        "-reload=30",  # seconds; what the other process has found
        "-print_final_stats=0",
        f"-artifact_prefix={args.findings}/",
        f"-seed={args.seed}",
    ]
    with watched() as depth:
        run = Run(Player(depth), args)
        atheris.Setup([sys.argv[0], *options, str(args.corpus)], run.input, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
