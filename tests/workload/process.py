"""A writer or a reader in a process of its own: ``python -m tests.workload.process writer|reader CLIENTS CONF TOPIC
JOURNAL RUN``, with the clients of the package ``CLIENTS``. It ends in good order on SIGTERM."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.workload.journal import Journal
from tests.workload.reader import Reader
from tests.workload.writer import Writer

PER_S = 300.0
KEYS = 211


class StoringReader(Reader):
    """Stores the offset of a record once that is in the journal."""

    def take(self, messages: Any) -> int:
        taken = super().take(messages)
        for message in messages:
            if message.error() is None:
                self.consumer.store_offsets(message)
        return taken


def now_ms() -> int:
    """The machine's monotonic clock, which all processes share."""
    return time.monotonic_ns() // 1_000_000 & 0xFFFFFFFF


def end_with(owner: int) -> None:
    """No process stays behind where the tests are killed, by their own time limit, say."""
    while os.getppid() == owner:
        time.sleep(1)  # nothing tells a process that its parent has gone
    os.kill(os.getpid(), signal.SIGKILL)


def main(role: str, clients: str, conf: str, topic: str, path: str, run: str) -> None:
    """Run one client to its end."""
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    package: Any = importlib.import_module(clients)
    journal, settings = Journal(Path(path), now_ms), json.loads(conf)
    client: Writer | Reader
    if role == "writer":
        client = Writer(lambda: package.Producer(settings), topic, journal, int(run), keys=KEYS, per_s=PER_S)
    else:
        settings |= {"enable.auto.offset.store": False, "auto.commit.interval.ms": 300}
        client = StoringReader(lambda: package.Consumer(settings), [topic], journal)
    signal.signal(signal.SIGTERM, lambda *_: client.done.set())
    client.work()
    journal.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
