"""Reading the mode log to its end, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.errors import ErrorCode, ModeSourceError
from modeaware.modelog.replay import Replay
from modeaware.modelog.stream import LogAbsent, LogRecord, LogStream, LogUnreachable

SLICE_S = 0.1
SILENCE_S = 1.0
"""A log that tells neither records nor its end for this long is asked why."""


def read_mode_log(conf: Mapping[str, Any], topic: str, timeout_s: float, *, must_exist: bool = False) -> Replay:
    """Read the mode log to its end: everything that was appended and committed before this is called.

    Args:
        conf: librdkafka settings (``bootstrap.servers``, security settings; others are ignored).
        topic: the mode log.
        timeout_s: in seconds, for all of it.
        must_exist: whoever has just made sure that the log exists must not take a broker's word that it does not (the
            broker may lag behind): wait for it. Otherwise an absent log reads as an empty one.

    Raises:
        NotAuthorized: the user may not read it.
        ModeSourceError: it could not be read to its end within ``timeout_s``.
    """
    replay = Replay()

    def apply(records: Sequence[LogRecord]) -> None:
        for record in records:
            replay.apply(record.key, record.value)

    try:
        read_to_end(conf, topic, 0, apply, timeout_s, must_exist=must_exist)
    except LogAbsent:
        if must_exist:
            raise
    return replay


def read_to_end(
    conf: Mapping[str, Any],
    topic: str,
    start: int,
    apply: Callable[[Sequence[LogRecord]], None],
    timeout_s: float,
    *,
    must_exist: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> int:
    """Hand all records from offset ``start`` on to ``apply``, in batches, up to the end as it is when this is called.

    Returns:
        The offset at which the log goes on.

    Raises:
        LogAbsent, LogRewound, NotAuthorized: what the cluster says of the log (LogAbsent with ``must_exist``: only at
            the timeout).
        ModeSourceError: the end was not reached within ``timeout_s``; carries the last thing that went wrong.
    """
    deadline_s = clock.monotonic_s() + timeout_s
    last: ModeSourceError | None = None
    with closing(LogStream(conf, topic, start)) as stream:
        silence = Silence(stream, clock)
        target: int | None = None
        while (left_s := deadline_s - clock.monotonic_s()) > 0:
            try:
                records = stream.poll(min(SLICE_S, left_s))
                if records:
                    apply(records)
                silence.watch(heard=bool(records) or stream.end is not None)
                if stream.end is not None and target is None:
                    target = stream.committed_end(left_s)
            except LogUnreachable as error:
                silence.broken()
                last = error
            except LogAbsent as error:
                if not must_exist:
                    raise
                last = error
            if target is not None and stream.position >= target:
                return stream.position
    if isinstance(last, LogAbsent):
        raise last
    if last is None and target is not None:
        last = ModeSourceError(f"a transaction is open before offset {target}")
    raise ModeSourceError(
        f"mode log: the end of topic {topic!r} was not reached within {timeout_s:g} s" + (f": {last}" if last else ""),
        code=ErrorCode.REQUEST_TIMED_OUT,
        topic=topic,
    )


class Silence:
    """Asks the cluster about the log when a stream has told neither records nor the end for :data:`SILENCE_S`."""

    def __init__(self, stream: LogStream, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._heard_s = clock.monotonic_s()

    def broken(self) -> None:
        """It told an error: asking would tell no more."""
        self._heard_s = self._clock.monotonic_s()

    def watch(self, *, heard: bool) -> None:
        """To be called after every poll.

        Raises:
            LogAbsent, LogUnreachable, NotAuthorized: what the cluster answers when it is asked.
        """
        now_s = self._clock.monotonic_s()
        if heard:
            self._heard_s = now_s
        elif now_s - self._heard_s > SILENCE_S:
            self._heard_s = now_s
            self._stream.ask_access(SILENCE_S)
