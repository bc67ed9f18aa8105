"""Programs that run with the modeaware that comes first on PYTHONPATH; what they print first tells which.

``CLIENTS=confluent_kafka`` makes them programs with plain clients.
"""

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

clients = importlib.import_module(os.environ["CLIENTS"])
KEYS = 211


def end_with(owner: int) -> None:
    """No process stays behind where the tests are killed, by their own time limit, say."""
    while os.getppid() == owner:
        time.sleep(1)  # nothing tells a process that its parent has gone
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    print(clients.__version__, clients.__file__, flush=True)
    role, *arguments = sys.argv[1:]
    if role == "command":
        from modeaware.cli import main as command

        return int(command(arguments))
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
    settings, topic, journal, name = arguments
    with Path(journal).open("a", buffering=1, encoding="utf-8") as lines:
        {"send": send, "read": read}[role](json.loads(settings), topic, lines, name, stop)
    return 0


def send(conf: dict[str, Any], topic: str, lines: Any, name: str, stop: list[int]) -> None:
    """Keyed, numbered records until told to stop; a line for each that is acknowledged, or failed."""

    def told(error: Any, message: Any) -> None:
        value = message.value().decode()
        lines.write(f"failed {value} {error}\n" if error else f"{value} {message.partition()} {message.offset()}\n")

    producer = clients.Producer(conf)
    number = 0
    while not stop:
        try:
            producer.produce(topic, f"{name}-{number}".encode(), f"key-{number % KEYS}".encode(), on_delivery=told)
            number += 1
        except BufferError:  # no view of the modes yet, or the queue is full
            pass
        producer.poll(0.003)
    assert producer.flush(60) == 0
    producer.close()


def read(conf: dict[str, Any], topic: str, lines: Any, name: str, stop: list[int]) -> None:
    """A member of a group: a line for each record, written before its offset may be committed."""
    consumer = clients.Consumer({**conf, "enable.auto.offset.store": False, "auto.commit.interval.ms": 300})
    consumer.subscribe([topic])
    while not stop:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error():
            print(name, message.error(), flush=True)
            continue
        where = f"{message.partition()} {message.offset()} {message.key().decode()} {time.monotonic_ns()}"
        lines.write(f"{message.value().decode()} {where}\n")
        consumer.store_offsets(message)
    consumer.close()


if __name__ == "__main__":
    sys.exit(main())
