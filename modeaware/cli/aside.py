"""Work in a thread of its own, so that Ctrl-C is heard while it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")
STOP_TIMEOUT_S = 10.0


def aside(work: Callable[[], _T], stop: Callable[[], None] | None = None) -> _T:
    """The result of ``work``, or what it raises.

    Python raises a KeyboardInterrupt in the main thread, wherever that is, and the client libraries are no place for
    it: kafka-python logs it and goes on, or is left with a lock that is held; confluent_kafka loses it while it lets go
    of a client. So the main thread does nothing but wait.

    Args:
        stop: has the work end early; called after an interruption, and the end is then waited for, up to
            :data:`STOP_TIMEOUT_S`. None: work that only reads, and is left behind.

    Raises:
        KeyboardInterrupt: as soon as it comes; with ``stop``, when the work has ended.
    """
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the one who waits raises it
            future.set_exception(error)

    thread = threading.Thread(target=run, name="modeaware-aside", daemon=True)
    thread.start()
    try:
        return future.result()
    except KeyboardInterrupt:
        if stop is not None:
            stop()
            thread.join(STOP_TIMEOUT_S)
        raise
