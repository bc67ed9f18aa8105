"""Metadata of a cluster of 5 000 partitions: KIP-694's version 10 from an endpoint beside a broker's own version 9.

Both are asked for the same topics over a connection of their own, one after the other, and answer the same bytes but
for the modes. The endpoint asks the broker each time: an answer that is unchanged is one that the broker gives with the
same bytes while no mode has changed, and a first one is given with the endpoint's cache emptied. The endpoint runs in
a thread of this process, as in a controller's.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.harness import Result, Timing, interleave
from benchmarks.setting import Setting
from modeaware.endpoint import server as server_module
from modeaware.endpoint.metadata import Answers
from modeaware.endpoint.server import Server
from modeaware.endpoint.transport import Upstream
from modeaware.local import LocalKafka
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from modeaware.wire import codec
from modeaware.wire.frames import MAX_RESPONSE_BYTES, FrameReader, frame
from modeaware.wire.security import split_address
from tests.support.conversation import FakeDesk
from tests.support.endpoint import StubController

SHAPES = ((1, 5_000), (100, 50))
"""Topics, and partitions of each."""
ROUNDS = 100
MOST_FIRST, MOST_UNCHANGED = 5.0, 1.5
SHRUNK_EVERY = 5
"""Of so many topics, one has modes: its last quarter is retired."""


class Asker:
    """One connection that asks by hand: decoding would cost a client more than all that is measured."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = FrameReader(MAX_RESPONSE_BYTES)
        hello = codec.ApiVersionsRequest(client_software_name="modeaware", client_software_version="1")
        self.ask(codec.encode_request(hello, 3, 1, "bench"))

    def ask(self, payload: bytes) -> bytes:
        self._socket.sendall(frame(payload, 1_000_000))
        while True:
            data = self._socket.recv(262_144)
            if not data:
                raise ConnectionError("the peer has closed the connection")
            if frames := self._frames.receive(data):
                return frames[0]

    def timed(self, payload: bytes) -> Timing:
        start_s = time.perf_counter()
        self.ask(payload)
        return Timing(time.perf_counter() - start_s, 0.0)

    def close(self) -> None:
        self._socket.close()


def measure(setting: Setting) -> Iterator[Result]:
    for topics, partitions in SHAPES:
        with LocalKafka() as kafka:  # of its own: what is asked for is everything it has
            names = _make_topics(kafka.bootstrap_servers, topics, partitions)
            yield from _measure(kafka.bootstrap_servers, names, partitions, setting.rounds(ROUNDS))


def _make_topics(servers: str, topics: int, partitions: int) -> list[str]:
    names = [f"bench-{number}" for number in range(topics)]
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(name, partitions) for name in names], operation_timeout=60).values():
        future.result(120)
    return names


def _view(name: str, partitions: int) -> TopicView:
    retired = partitions // 4
    modes = [PartitionMode.READ_WRITE] * (partitions - retired) + [PartitionMode.READ_ONLY] * retired
    return TopicView(name, None, (1, 1), tuple(modes))


@contextmanager
def _server(servers: str, known: Mapping[str, TopicView]) -> Iterator[tuple[Server, Callable[[], None]]]:
    """A started one, and what empties its cache."""
    caches: list[Answers] = []
    original = server_module.Answers

    def made(limits: object) -> Answers:
        caches.append(original(limits))  # type: ignore[arg-type]  # the server's own
        return caches[-1]

    desk, controller = FakeDesk(dict(known), active=False, claimed=None), StubController()
    server = Server("127.0.0.1:0", desk, controller.submit, controller.refresh, Upstream([split_address(servers)]))
    server_module.Answers = made  # type: ignore[misc,assignment]  # it has no other way in
    try:
        server.start()
        desk.advertised = server.advertised
    finally:
        server_module.Answers = original  # type: ignore[misc]  # as before
    try:
        yield server, lambda: caches[0]._kept.clear()
    finally:
        server.stop()


def _measure(servers: str, names: Sequence[str], partitions: int, rounds: int) -> Iterator[Result]:
    known = {name: _view(name, partitions) for name in names[::SHRUNK_EVERY]}
    broker_request = codec.encode_request(codec.ModesMetadataRequest(topics=None), 9, 1, "bench")
    modes_request = codec.encode_request(codec.ModesMetadataRequest(topics=None), codec.MODES_VERSION, 1, "bench")
    with ExitStack() as stack:
        server, empty = stack.enter_context(_server(servers, known))
        askers = [Asker(split_address(servers)), *(Asker(server.advertised) for _ in range(2))]
        for asker in askers:
            stack.callback(asker.close)
        broker, first, unchanged = askers
        _wait_for_all(lambda: broker.ask(broker_request), len(names) * partitions)
        size = len(broker.ask(broker_request))
        _check(unchanged.ask(modes_request), names, partitions, known)

        # Each asks once before it is timed: what a peer did long ago it does slower, whoever it is.
        def first_answer() -> Timing:
            first.ask(modes_request)
            empty()
            return first.timed(modes_request)

        def unchanged_answer() -> Timing:
            unchanged.ask(modes_request)  # its answer is kept now
            return unchanged.timed(modes_request)

        def broker_answer() -> Timing:
            broker.ask(broker_request)
            return broker.timed(broker_request)

        work = {"broker": broker_answer, "first": first_answer, "unchanged": unchanged_answer}
        times = interleave(work, rounds)
    ms = {name: statistics.median(each.wall_s for each in timings) * 1000 for name, timings in times.items()}
    shape = f"{len(names)} x {partitions} partitions"
    for name, title, most in (("first", "first", MOST_FIRST), ("unchanged", "unchanged", MOST_UNCHANGED)):
        details = {
            "broker_ms": round(ms["broker"], 2),
            "ours_ms": round(ms[name], 2),
            "topics_with_modes": len(known),
            "answer_kb": round(size / 1024),
            "ratio_of_medians": round(ms[name] / ms["broker"], 2),
        }
        ratio = statistics.median(o.wall_s / b.wall_s for o, b in zip(times[name], times["broker"], strict=True))
        yield Result(f"Metadata 10 beside a broker's 9, {shape}, {title}", ratio, "x", below=most, details=details)


def _wait_for_all(ask: Callable[[], bytes], partitions: int) -> None:
    """Until the broker itself knows what its controller has created."""
    deadline_s = time.monotonic() + 30
    while True:
        _, answer = codec.decode_response(ask(), codec.METADATA_KEY, 9)
        known = sum(len(topic.partitions) for topic in answer.topics)
        if known == partitions:
            return
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the broker knows {known} of {partitions} partitions after 30 s")
        time.sleep(0.05)  # between two looks


def _check(answer: bytes, names: Sequence[str], partitions: int, known: Mapping[str, TopicView]) -> None:
    """That it is what it should be: all partitions, and the modes."""
    topics = {topic.name: topic for topic in codec.decode_response(answer, 3, 10)[1].topics}
    for name in names:
        told = sorted((each.partition_index, each.mode) for each in topics[name].partitions)
        view = known.get(name) or TopicView.unlisted(name)
        if told != [(index, view.mode(index)) for index in range(partitions)]:
            raise RuntimeError(f"{name}: not the modes it has")
