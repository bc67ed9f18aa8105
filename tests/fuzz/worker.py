"""One fuzzing process: atheris, from the corpus in a folder, for some seconds or until something is found.

``python -m tests.fuzz.worker CORPUS REPORT FINDINGS SECONDS SEED``
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

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
MOST_RSS_MB = 1_024
_SAVED_EVERY = 2_000
SPARE = spare()


def mutate(data: bytes, most_bytes: int, seed: int) -> bytes:
    """libFuzzer's own changes, within the form of a conversation."""

    def change(part: bytes) -> bytes:
        return bytes(atheris.Mutate(part, len(part) + 64)) if part else b"\0"

    return mutated(data, most_bytes, random.Random(seed), change, SPARE)


def main(corpus: Path, report: Path, findings: Path, seconds: float, seed: str) -> None:
    start_s = time.monotonic()
    for data in seeds():
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)

    def save(finding: str | None) -> None:
        """Write the report in one piece."""
        tally = player.tally
        tally.most_duration_s = time.monotonic() - start_s
        tally.most_rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
        new = report.with_suffix(".new")
        new.write_text(json.dumps({"finding": finding, "tally": asdict(tally)}), encoding="utf-8")
        new.replace(report)

    def play(data: bytes) -> None:
        """One input; the process ends here with the time, or with a finding."""
        try:
            player.play(data)
        except Exception:  # noqa: BLE001 - that is what is looked for; the process ends with it
            path = findings / hashlib.sha256(data).hexdigest()[:16]
            path.write_bytes(data)
            save(f"{path}: {traceback.format_exc()}")
            os._exit(1)
        over = time.monotonic() - start_s >= seconds
        if over or player.tally.conversations % _SAVED_EVERY == 0:
            save(None)
        if over:
            os._exit(0)

    options = [
        f"-max_len={MOST_BYTES}",
        "-len_control=0",
        f"-timeout={HANG_S}",
        f"-rss_limit_mb={MOST_RSS_MB}",
        "-reload=30",  # seconds; what the other process has found
        "-print_final_stats=0",
        f"-artifact_prefix={findings}/",
        f"-seed={seed}",
    ]
    with watched() as depth:
        player = Player(depth)
        atheris.Setup([sys.argv[0], *options, str(corpus)], play, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    _, corpus, report, findings, seconds, seed = sys.argv
    main(Path(corpus), Path(report), Path(findings), float(seconds), seed)
