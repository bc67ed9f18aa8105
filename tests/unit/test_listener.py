"""The listener, with real sockets and a stand-in for the controller behind it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing

import pytest

from modeaware.controller.listener import Listener, ListenerLimits
from modeaware.errors import ClusterError, ConfigError, ControllerUnavailable, ErrorCode, RequestRefused
from modeaware.lifecycle.commands import AlterGroupRulesCommand, Command, CommandResult, DeletePartitionsCommand
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import ClaimRecord
from modeaware.modes import PartitionMode
from modeaware.wire import client, codec, messages
from modeaware.wire.client import split_address
from modeaware.wire.frames import MAX_RESPONSE_BYTES, FrameReader, frame

RW, RO = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY


class StubController:
    """Takes commands as a controller does; ``answer`` makes the results, or is None to leave them open."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Sequence[Command], int]] = []
        self.open: list[Future[list[CommandResult]]] = []
        self.answer: Callable[[Sequence[Command]], list[CommandResult]] | None = lambda commands: [
            CommandResult(command.topic, modes=(RW, RO)) for command in commands
        ]

    def submit(self, commands: Sequence[Command], timeout_ms: int) -> Future[list[CommandResult]]:
        self.submitted.append((commands, timeout_ms))
        future: Future[list[CommandResult]] = Future()
        self.open.append(future)
        if self.answer is not None:
            try:
                future.set_result(self.answer(commands))
            except (ClusterError, ZeroDivisionError) as error:
                future.set_exception(error)
        return future


ID = "controller-1"


def _claim(address: str | None, controller_id: str = ID, host: str = "") -> ClaimRecord:
    return ClaimRecord(1, address, controller_id, host=host)


@pytest.fixture
def controller() -> StubController:
    return StubController()


@pytest.fixture
def listener(controller: StubController) -> Iterator[Listener]:
    listener = Listener("127.0.0.1:0", controller.submit, ID, ListenerLimits(connections=5, idle_s=30.0))
    listener.start()
    yield listener
    listener.stop()


def _delete(timeout_ms: int = 5000, **counts: int) -> object:
    return messages.delete_partitions_request(counts, delay_ms=-1, immediate_delete=False, timeout_ms=timeout_ms)


def _connect(listener: Listener) -> socket.socket:
    return socket.create_connection(split_address(listener.address), timeout=10)


def _read_frames(connection: socket.socket, count: int) -> list[bytes]:
    reader = FrameReader(MAX_RESPONSE_BYTES)
    frames: list[bytes] = []
    while len(frames) < count:
        data = connection.recv(65_536)
        assert data, "closed"
        frames += reader.receive(data)
    return frames


def _closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_shrink_reaches_the_controller_and_its_answer_comes_back(
    listener: Listener, controller: StubController
) -> None:
    answers = messages.results_of(client.request(_claim(listener.address), _delete(orders=1), 10))
    assert answers == {"orders": messages.TopicResult("orders", {1: RO})}
    assert controller.submitted == [([DeletePartitionsCommand("orders", 1)], 5000)]


def test_growth_reaches_the_controller(listener: Listener, controller: StubController) -> None:
    controller.answer = lambda commands: [CommandResult("t", ErrorCode.INVALID_PARTITIONS, "not an increase")]
    from modeaware.lifecycle.commands import CreatePartitionsCommand

    command = CreatePartitionsCommand("t", 6, ((1,),))
    request = messages.create_partitions_request([command], validate_only=False, timeout_ms=100)
    refusal = messages.results_of(client.request(_claim(listener.address), request, 10))["t"]
    assert isinstance(refusal, RequestRefused)
    assert refusal.code is ErrorCode.INVALID_PARTITIONS
    assert controller.submitted == [([command], 100)]


def test_rules_about_groups_reach_the_controller(listener: Listener, controller: StubController) -> None:
    command = AlterGroupRulesCommand((GroupRule("require", "spark", "t", "", 5),), (("closed", "", "*"),))
    request = messages.alter_group_rules_request(command, timeout_ms=100)
    assert messages.results_of(client.request(_claim(listener.address), request, 10)) == {"": messages.TopicResult("")}
    controller.answer = lambda commands: [CommandResult("", ErrorCode.INVALID_REQUEST, "no such rule")]
    with pytest.raises(RequestRefused, match="no such rule"):
        messages.results_of(client.request(_claim(listener.address), request, 10))
    assert controller.submitted == [([command], 100)] * 2


def test_duplicate_topics_are_refused_and_never_submitted(listener: Listener, controller: StubController) -> None:
    request = codec.DeletePartitionsRequest(timeout_ms=5, topics=[("a", 1), ("a", 2)])
    response = client.request(_claim(listener.address), request, 10)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert "twice" in response.error_message
    assert controller.submitted == []


def test_a_command_that_takes_too_long_is_answered_as_timed_out(listener: Listener, controller: StubController) -> None:
    controller.answer = None
    response = client.request(_claim(listener.address), _delete(timeout_ms=20, orders=1), 10)
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert not controller.open[0].cancelled(), "what the controller has been given is not taken back"
    controller.open[0].set_exception(ClusterError("late"))  # nobody waits for it any more, and nothing breaks


def test_a_failure_of_the_controller_is_answered(listener: Listener, controller: StubController) -> None:
    def fail(commands: Sequence[Command]) -> list[CommandResult]:
        raise ClusterError("the brokers are away", code=ErrorCode.REQUEST_TIMED_OUT)

    controller.answer = fail
    response = client.request(_claim(listener.address), _delete(orders=1), 10)
    assert (response.error_code, response.error_message) == (ErrorCode.REQUEST_TIMED_OUT, "the brokers are away")


def test_a_bug_of_the_controller_is_answered_as_unknown_error(listener: Listener, controller: StubController) -> None:
    controller.answer = lambda commands: [CommandResult(str(1 // 0))]
    response = client.request(_claim(listener.address), _delete(orders=1), 10)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in response.error_message


@pytest.mark.parametrize("version", range(5))
def test_api_versions_tells_what_is_spoken(listener: Listener, version: int) -> None:
    with closing(_connect(listener)) as connection:
        hello = codec.ApiVersionsRequest(client_software_name="x", client_software_version="1")
        connection.sendall(frame(codec.encode_request(hello, version, 5, "x"), 1000))
        correlation_id, answer = codec.decode_response(_read_frames(connection, 1)[0], 18, version)
    assert correlation_id == 5
    spoken = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
    assert spoken == {18: (0, 4), 37: (0, 3), 694: (0, 0), 695: (0, 0)}


def test_a_later_version_of_api_versions_is_answered_in_version_0(listener: Listener) -> None:
    with closing(_connect(listener)) as connection:
        connection.sendall(frame(struct.pack(">hhih", 18, 9, 77, -1) + b"whatever version 9 has", 1000))
        correlation_id, answer = codec.decode_response(_read_frames(connection, 1)[0], 18, 9)
    assert (correlation_id, answer.error_code) == (77, ErrorCode.UNSUPPORTED_VERSION)
    assert (18, 0, 4) in [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys]


def test_requests_of_one_connection_are_answered_in_order(listener: Listener, controller: StubController) -> None:
    controller.answer = None
    with closing(_connect(listener)) as connection:
        for correlation_id in (1, 2):
            payload = codec.encode_request(_delete(orders=correlation_id), 0, correlation_id, "x")
            connection.sendall(frame(payload, 1000))
        hello = codec.encode_request(codec.ApiVersionsRequest(), 0, 3, "x")
        connection.sendall(frame(hello, 1000))
        _until(lambda: len(controller.open) == 1)
        controller.open[0].set_result([CommandResult("orders", modes=(RW,))])
        _until(lambda: len(controller.open) == 2)
        controller.open[1].set_result([CommandResult("orders", modes=(RW,))])
        frames = _read_frames(connection, 3)
    assert [struct.unpack_from(">i", payload)[0] for payload in frames] == [1, 2, 3]


MALFORMED = {
    "negative length": struct.pack(">i", -1),
    "huge length": struct.pack(">i", 2**31 - 1),
    "empty frame": struct.pack(">i", 0),
    "an api that is not spoken": frame(struct.pack(">hhih", 3, 9, 1, -1), 100),
    "a version that is not spoken": frame(struct.pack(">hhih", 694, 7, 1, -1), 100),
    "cut short": frame(struct.pack(">hhih", 694, 0, 1, -1), 100),
    "null topics": frame(
        struct.pack(">hhih", 694, 0, 1, -1) + b"\0" + struct.pack(">i?q", 1, False, -1) + b"\0\0", 100
    ),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("rubbish", MALFORMED.values(), ids=MALFORMED)
def test_rubbish_closes_the_connection_and_nothing_else(
    listener: Listener, controller: StubController, rubbish: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(_connect(listener)) as other, closing(_connect(listener)) as connection:
        connection.sendall(rubbish)
        assert _closed(connection)
        other.sendall(frame(codec.encode_request(codec.ApiVersionsRequest(), 0, 1, "x"), 1000))
        assert _read_frames(other, 1)
    assert controller.submitted == []
    assert [r.levelname for r in caplog.records if "closed the connection of 127.0.0.1:" in r.message] == ["WARNING"]


def test_connections_beyond_the_limit_are_closed(listener: Listener) -> None:
    held = []
    try:
        for _ in range(5):
            connection = _connect(listener)
            held.append(connection)
            connection.sendall(frame(codec.encode_request(codec.ApiVersionsRequest(), 0, 1, "x"), 1000))
            _read_frames(connection, 1)
        with closing(_connect(listener)) as one_too_many:
            assert _closed(one_too_many)
    finally:
        for connection in held:
            connection.close()
    _until(lambda: client.is_running(_claim(listener.address)))


def test_a_peer_that_drips_bytes_is_closed_after_the_idle_time(controller: StubController) -> None:
    listener = Listener("127.0.0.1:0", controller.submit, ID, ListenerLimits(idle_s=0.05))
    listener.start()
    try:
        with closing(_connect(listener)) as connection:
            connection.sendall(b"\0\0")
            assert _closed(connection)
    finally:
        listener.stop()


def test_stop_closes_connections_even_with_a_command_in_work(controller: StubController) -> None:
    controller.answer = None
    listener = Listener("127.0.0.1:0", controller.submit, ID)
    listener.start()
    with closing(_connect(listener)) as connection:
        connection.sendall(frame(codec.encode_request(_delete(orders=1), 0, 1, "x"), 1000))
        _until(lambda: len(controller.open) == 1)
        listener.stop()
        listener.stop()
        assert _closed(connection)
    assert not [thread for thread in threading.enumerate() if thread.name == "modeaware-listener"]
    assert not client.is_running(_claim(listener.address), 1.0)


@pytest.mark.parametrize("listen", ["0.0.0.0:9000", "192.0.2.1:9000", "[::]:9000"])
def test_an_address_others_can_reach_is_refused_with_the_reason(listen: str, controller: StubController) -> None:
    with pytest.raises(ConfigError, match="does not authenticate"):
        Listener(listen, controller.submit, ID)


@pytest.mark.parametrize("listen", ["", "127.0.0.1", "127.0.0.1:", "127.0.0.1:port", "127.0.0.1:99999"])
def test_what_is_no_address_is_refused(listen: str, controller: StubController) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        Listener(listen, controller.submit, ID)


def test_a_port_in_use_is_a_clear_error(listener: Listener, controller: StubController) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on {listener.address}"):
        Listener(listener.address, controller.submit, ID).start()


def test_without_a_host_it_listens_on_loopback(controller: StubController) -> None:
    listener = Listener(":0", controller.submit, ID)
    listener.start()
    try:
        assert listener.address.startswith("127.0.0.1:")
        assert client.is_running(_claim(listener.address))
    finally:
        listener.stop()


class Impostor:
    """Something else on the controller's port: answers every connection with the same bytes, or closes it."""

    def __init__(self, answer: bytes) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.received = b""
        self._answer = answer
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with closing(connection):
            self.received = connection.recv(65_536)
            connection.sendall(self._answer)

    def close(self) -> None:
        self._thread.join()
        self._server.close()


def _broker_answer() -> bytes:
    """What a stock broker says: it knows no DeletePartitions."""
    answer = codec.ApiVersionsResponse(error_code=0, api_keys=[(3, 0, 13), (18, 0, 4)], throttle_time_ms=0)
    return frame(codec.encode_response(answer, 3, 1), 1000)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", _broker_answer()])
def test_a_command_is_never_sent_to_what_is_no_controller(answer: bytes) -> None:
    impostor = Impostor(answer)
    try:
        with pytest.raises(ControllerUnavailable, match="is not the controller"):
            client.request(_claim(impostor.address), _delete(orders=1), 10)
    finally:
        impostor.close()
    assert struct.unpack_from(">h", impostor.received, 4) == (18,)
    assert b"modeaware" in impostor.received


def test_a_command_is_never_sent_to_another_controller(listener: Listener, controller: StubController) -> None:
    stale = _claim(listener.address, "controller-0")  # its port has been taken by another one, of another cluster maybe
    with pytest.raises(ControllerUnavailable, match="is not the controller controller-0"):
        client.request(stale, _delete(orders=1), 10)
    assert not client.is_running(stale)
    assert controller.submitted == []


def test_a_controller_on_another_host_is_neither_asked_nor_taken_for_dead(listener: Listener) -> None:
    elsewhere = _claim(listener.address, host="another-host.example")
    with pytest.raises(ControllerUnavailable, match="run the command on that host"):
        client.request(elsewhere, _delete(orders=1), 10)
    with pytest.raises(ControllerUnavailable, match="another-host"):
        client.is_running(elsewhere)


def test_no_controller_is_running_without_a_claim_or_an_address() -> None:
    assert not client.is_running(None)
    assert not client.is_running(_claim(None))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "127.0.0.1:x"])
def test_nobody_there_is_controller_unavailable(address: str) -> None:
    with pytest.raises(ControllerUnavailable, match="cannot be reached"):
        client.request(_claim(address), _delete(orders=1), 5)
    assert not client.is_running(_claim(address))


def test_a_controller_that_goes_silent_is_a_cluster_error(listener: Listener, controller: StubController) -> None:
    controller.answer = None
    with pytest.raises(ClusterError, match="before trying again") as caught:
        client.request(_claim(listener.address), _delete(orders=1), 0.3)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


def _until(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(1000):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("the condition did not come true")
