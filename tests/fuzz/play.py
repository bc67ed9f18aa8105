"""Carries a conversation out: bytes through frame readers into a session, as a connection of the endpoint does it."""

from __future__ import annotations

import gc
import resource
import sys
import time
import tracemalloc
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from modeaware.endpoint import facade
from modeaware.endpoint.api_versions import Awareness
from modeaware.endpoint.limits import EndpointLimits
from modeaware.endpoint.metadata import Answers
from modeaware.endpoint.session import ClientSession
from modeaware.errors import ControllerUnavailable, ErrorCode, ModeSourceError
from modeaware.lifecycle.commands import CommandResult
from modeaware.topic_view import TopicView
from modeaware.wire import codec
from modeaware.wire.frames import FrameReader, MalformedFrame, frame
from tests.fuzz.events import Event, Kind, parse
from tests.fuzz.tally import Finding, Tally
from tests.support.conversation import (
    ALTER_AND_DELETE,
    NONE,
    NOT_SAID,
    RO,
    RW,
    SHRUNK,
    FakeDesk,
    broker_versions,
    metadata_answer,
    pass_through_answer,
)

LIMITS = EndpointLimits(
    request_bytes=16_384,
    change_bytes=4_096,
    modes_bytes=4_096,
    response_bytes=65_536,
    upstream_bytes=32_768,
    pipeline=10,
    held_bytes=16_384,
    cache_bytes=262_144,
)
"""So low that small inputs are above them."""
VIEWS = {
    view.topic: view
    for view in (
        SHRUNK,
        TopicView("t", None, (1, 1), (RW, NONE), {1: 2**62}, frozenset()),
        TopicView("größer", "Z3LDtsOfZXItaWQtaW4tNjQ", (9, 9), (RW, RW, RO, RO, NONE), {2: 0}, frozenset({4})),
        TopicView("\ud800", "half a character", (1, 2), (RO,), {}, frozenset()),
    )
}
SECRET = b"fuzz-secret-token"
"""In the seeds' SASL frames; may stand in no reason of a Close."""
SPOKEN = [(key, version) for key, (low, high) in codec.VERSIONS.items() for version in range(low, high + 1)]
MOST_CPU_S = 1.0
"""Of one frame. CPU time: other work of the machine must not look like a hang."""
MOST_PEAK_BYTES = 8_388_608
"""Of one conversation, in Python's own memory."""
MOST_GROWTH_MB = 256
"""Of the whole process, from when it has warmed up; libFuzzer's corpus is in it."""
MOST_GROWTH_BLOCKS = 100_000
"""Python objects that stay, from when it has warmed up."""
_MEASURED_EVERY, _SAMPLED_EVERY = 512, 2_048
_PAYLOAD_MOST = 2**31 - 1


class Player:
    """Carries out any number of conversations. Not safe to share between threads.

    Args:
        depth: of :func:`tests.fuzz.tally.watched`.
    """

    def __init__(self, depth: Counter[str]) -> None:
        self.tally = Tally()
        self.depth = depth
        self.answers = Answers(LIMITS)
        self._warm: tuple[int, float] | None = None

    def play(self, data: bytes) -> None:
        """
        Raises:
            Exception: a finding; whatever comes out of what is tried, or :class:`Finding`.
        """
        number = self.tally.conversations = self.tally.conversations + 1
        conversation = Conversation(self, *parse(data))
        if number % _MEASURED_EVERY == 0:
            peak_bytes = traced(conversation.run)[1]
            self.tally.measured += 1
            self.tally.most_peak_bytes = max(self.tally.most_peak_bytes, peak_bytes)
            if peak_bytes > MOST_PEAK_BYTES:
                raise Finding(f"a conversation of {len(data)} bytes took {peak_bytes} bytes of memory")
        else:
            conversation.run()
        if number % _SAMPLED_EVERY == 0:
            self._sample()

    def _sample(self) -> None:
        """Compare the process with what it was at the first sample, when it had warmed up."""
        gc.collect()
        tally, blocks = self.tally, sys.getallocatedblocks()
        tally.most_rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
        warm_blocks, warm_mb = self._warm = self._warm or (blocks, tally.most_rss_mb)
        tally.most_growth_blocks = max(tally.most_growth_blocks, blocks - warm_blocks)
        if tally.most_rss_mb - warm_mb > MOST_GROWTH_MB or tally.most_growth_blocks > MOST_GROWTH_BLOCKS:
            raise Finding(f"the process grew from {warm_mb:.0f} MB by {tally}")

    def timed(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Hand on one frame, and note how far it is read and what it costs."""
        tally, depth = self.tally, self.depth
        entered, ended = depth["entered"], depth["ended"]
        start_s = time.thread_time()
        try:
            return call(*arguments)
        finally:
            spent_s = time.thread_time() - start_s
            tally.frames += 1
            tally.past_header += depth["entered"] > entered
            tally.whole += depth["ended"] > ended
            if spent_s > tally.most_cpu_s and not tracemalloc.is_tracing():
                tally.most_cpu_s = spent_s
                if spent_s > MOST_CPU_S:
                    raise Finding(f"a frame took {spent_s:.2f} s of CPU time")


def traced(call: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """What it returns, and the peak of Python's memory meanwhile, in bytes. Takes ten times as long."""
    tracemalloc.start()
    try:
        return call(*arguments), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class Conversation:
    """One input. When a session ends, or its peer's stream cannot be read, the next connection begins.

    Args:
        setting: bits: the first connection requires SASL, old clients are refused, this controller stands by, the
            cache is shared, clients have named themselves already.
        events: see :class:`Kind`.
    """

    def __init__(self, player: Player, setting: int, events: list[Event]) -> None:
        self._player = player
        self._events = events
        self._named = bool(setting & 16)
        self._answers = player.answers if setting & 8 else Answers(LIMITS)
        self._desk = FakeDesk(
            known=VIEWS, old_clients=facade.REFUSE if setting & 2 else facade.SERVE, active=not setting & 4
        )
        self._connect(sasl=bool(setting & 1))

    def _connect(self, *, sasl: bool = False) -> None:
        self._session = ClientSession(self._desk, LIMITS, sasl, self._answers)
        said = Awareness(reads=self._named, follows=self._named)
        self._session._client = said  # as after ApiVersions, without its cost each time
        self._client, self._broker = FrameReader(LIMITS.request_bytes), FrameReader(LIMITS.upstream_bytes)
        self._unanswered: deque[bytes] = deque()
        self._asked: deque[bytes] = deque()
        self._submitted: facade.Submit | facade.Refresh | None = None

    def run(self) -> None:
        for kind, argument, payload in self._events:
            match kind:
                case Kind.CLIENT:
                    self._receive(self._client, self._from_client, frame(payload, _PAYLOAD_MOST), argument)
                case Kind.BYTES:
                    self._receive(self._client, self._from_client, payload, argument)
                case Kind.STRAY:
                    self._receive(self._broker, self._from_upstream, frame(payload, _PAYLOAD_MOST), argument)
                case Kind.GOOD if self._asked:
                    answer = good_answer(self._asked[0][:4], argument)
                    self._answer(answer if answer is not None else pass_through_answer(self._asked[0]), argument)
                case Kind.BROKER if self._asked:
                    self._answer(bytes(4) + payload, argument)
                case Kind.RESOLVED:
                    self._resolve(argument)
                case Kind.DESK:
                    self._change_desk(argument)
                case Kind.DECODE:
                    self._player.tally.decoder += 1
                    self._player.timed(decode, argument, payload)
        if (held_bytes := self._answers._kept.currsize) > LIMITS.cache_bytes:
            raise Finding(f"the cache holds {held_bytes} bytes")

    def _receive(self, reader: FrameReader, take: Callable[[bytes], None], data: bytes, argument: int) -> None:
        """In one piece, or in pieces of ``argument`` bytes while they are few."""
        size = argument if argument and len(data) < 500 else len(data) or 1
        for start in range(0, len(data), size):
            try:
                frames = reader.receive(data[start : start + size])
            except MalformedFrame:
                self._player.tally.refused_bytes += 1
                self._connect()
                return
            for payload in frames:
                take(payload)

    def _from_client(self, payload: bytes) -> None:
        self._player.tally.client += 1
        self._unanswered.append(payload[4:8])
        self._take(self._player.timed(self._session.from_client, payload))

    def _from_upstream(self, payload: bytes) -> None:
        self._player.tally.broker += 1
        if self._asked:
            self._asked.popleft()
        self._take(self._player.timed(self._session.from_upstream, payload))

    def _answer(self, answer: bytes, argument: int) -> None:
        payload = self._asked[0][4:8] + answer[4:]
        self._receive(self._broker, self._from_upstream, frame(payload, _PAYLOAD_MOST), argument)

    def _resolve(self, argument: int) -> None:
        submitted = self._submitted
        if submitted is None:
            self._take(self._session.resolved(argument, None))
            return
        commands = submitted.commands if isinstance(submitted, facade.Submit) else ()
        done = [CommandResult(getattr(each, "topic", "")) for each in commands]
        outcomes: list[Any] = [
            None if isinstance(submitted, facade.Refresh) else done,
            [CommandResult("t", ErrorCode(37), "m" * 2_000, (RO,) * argument) for _ in commands],
            ControllerUnavailable("it stops"),
            ModeSourceError("cannot be read"),
            OSError("no error of ours"),
            [CommandResult("too many")] * 3,
            None,
        ]
        self._submitted = None
        self._take(self._session.resolved(submitted.ticket, outcomes[argument % len(outcomes)]))

    def _change_desk(self, argument: int) -> None:
        fake = self._desk
        fake.active = not argument & 1
        fake.number += 1
        unknown = facade.ActiveController("other", None, 0) if argument & 2 else None
        fake.claimed = unknown if argument & 6 else facade.ActiveController("other", "active.example", 9691)
        fake.failure = ModeSourceError("not yet") if argument & 24 == 24 else None
        fake.known = VIEWS if argument & 8 else {}

    def _take(self, actions: list[facade.Action]) -> None:
        session, closed = self._session, False
        for number, action in enumerate(actions):
            match action:
                case facade.ToClient(payload):
                    self._player.tally.told += 1
                    if not self._unanswered or payload[:4] != self._unanswered.popleft():
                        raise Finding("an answer out of order, or to what was not asked")
                case facade.ToUpstream(payload):
                    self._asked.append(payload)
                case facade.Submit() | facade.Refresh():
                    if self._submitted is not None:
                        raise Finding("two tickets at once")
                    self._submitted = action
                case facade.Close(reason):
                    self._player.tally.closed += 1
                    closed = True
                    if number != len(actions) - 1 or session.wants_more or session.pending:
                        raise Finding("something after a Close")
                    if SECRET.decode() in reason or len(reason) > 300:
                        raise Finding(f"a reason that may quote a frame: {reason!r}")
        if closed:
            self._connect()
        elif session.pending > LIMITS.pipeline or session.pending != len(self._unanswered):
            raise Finding(f"{session.pending} requests are pending, {len(self._unanswered)} have no answer")


@cache
def good_answer(head: bytes, variant: int) -> bytes | None:
    """What a broker may answer to a request that begins with these four bytes; None: it is not looked into."""
    header = codec.peek_header(head + bytes(4))
    if not codec.is_supported(header):
        return None
    if header.api_key == codec.API_VERSIONS_KEY:
        return broker_versions(header.api_version, 0)
    if header.api_key != codec.METADATA_KEY:
        return None
    rights = (ALTER_AND_DELETE, 1 << 8, NOT_SAID, 1 << 7)[variant % 4]
    error = (0, 0, 3, 29, 5)[variant % 5]
    topics = {"orders": (error, 4, rights), "plain": (0, 2, rights), "t": (0, 1 + variant, rights), "größer": (0, 3, 0)}
    return metadata_answer(0, topics, version=header.api_version, cluster=rights)


def decode(argument: int, payload: bytes) -> None:
    """Let one decoder read it; what it could read must come out the same when it is written and read once more."""
    with suppress(MalformedFrame):
        match argument % 2:
            case 0:
                _round_trip(payload, codec.decode_request, _encode_request)
            case 1 if payload:
                key, version = SPOKEN[payload[0] % len(SPOKEN)]
                _round_trip(payload[1:], lambda data: codec.decode_response(data, key, version), _encode_response)


def _round_trip(data: bytes, read: Callable[[bytes], Any], write: Callable[[Any], bytes]) -> None:
    message = read(data)
    try:
        once = write(message)
        twice = write(read(once))
    except MalformedFrame as error:
        raise Finding("what was read cannot be written and read again") from error
    if once != twice:
        raise Finding("a message that is not the same when it is written, read and written again")


def _encode_request(read: tuple[Any, Any]) -> bytes:
    header, message = read
    return codec.encode_request(message, header.api_version, header.correlation_id, header.client_id)


def _encode_response(read: tuple[int, Any]) -> bytes:
    correlation_id, message = read
    return codec.encode_response(message, message.version, correlation_id)  # 0: ApiVersions with an error
