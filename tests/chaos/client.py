"""The process around a writer or a reader: ``python -m tests.chaos.{writer,reader} FOLDER NAME... RUN``.

Ends in good order on SIGTERM, with exit status 0; with 4 when its client failed for good (the run starts another one).
"""

from __future__ import annotations

import logging
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from tests.chaos.journal import Journal, Kind
from tests.chaos.setting import Setting

GAVE_UP = "of no use any more"
"""Logged when the client has failed for good."""
FAILED = 4

log = logging.getLogger("client")


class Client:
    """A writer or a reader. One thread owns it."""

    def __init__(self, setting: Setting, journal: Journal, name: str, run: str) -> None:
        self.setting = setting
        self.journal = journal
        self.chance = random.Random(f"{setting.seed}-{name}-{run}")
        self.stopping = False
        self.conf: dict[str, Any] = {
            "bootstrap.servers": setting.bootstrap_servers,
            "client.id": f"{name}-{run}",
            "log_level": 4,
            "reconnect.backoff.max.ms": 1_000,
            "error_cb": lambda error: log.warning("client: %s", error),
        }

    def work(self) -> bool:
        """Work until :attr:`stopping` is true; whether all is settled then.

        Raises:
            KafkaException: the client is of no use any more.
        """
        raise NotImplementedError

    def stop(self, *_: object) -> None:
        """Let :meth:`work` come to an end (signal handler)."""
        self.stopping = True


def main(role: str, make: Callable[..., Client]) -> int:
    """Run the client that ``make`` makes of the setting, the journal and the words of the command line."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    folder, *words = sys.argv[1:]
    setting = Setting.load(Path(folder))
    journal = Journal(setting.folder / ".".join([role, *words, "journal"]))
    client = make(setting, journal, *words)
    signal.signal(signal.SIGTERM, client.stop)
    try:
        if client.work():
            journal.add(Kind.ENDED)
    except KafkaException as error:
        log.error("%s: %s", GAVE_UP, error)
        return FAILED
    finally:
        journal.close()
    return 0
