"""An endpoint's server that cannot begin to serve: it says so, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import threading
from typing import Any

import pytest

from modeaware.endpoint import server as server_module
from modeaware.endpoint.server import THREAD_NAME, Server
from modeaware.endpoint.upstream import Upstream
from modeaware.errors import ConfigError
from tests.support.endpoint import TIMEOUT_S, FakeBroker, MakeServer, Peer, free_port

NO_FILES = OSError(errno.EMFILE, "Too many open files")


def _fails(failure: Exception) -> Any:
    def fail(*arguments: Any, **named: Any) -> Any:
        raise failure

    return fail


async def _no_server(*arguments: Any, **named: Any) -> Any:
    raise NO_FILES


@pytest.fixture
def server() -> Server:
    nothing: Any = None  # nobody gets as far as to ask
    return Server(f"127.0.0.1:{free_port()}", nothing, nothing, nothing, Upstream([("127.0.0.1", 1)]))


def _start(server: Server) -> BaseException | None:
    """What starting it raises. In another thread, so that one which never returns is seen."""
    raised: list[BaseException | None] = []

    def start() -> None:
        try:
            server.start()
        except (ConfigError, OSError, ValueError) as error:
            raised.append(error)
        else:
            raised.append(None)

    starting = threading.Thread(target=start, daemon=True)
    starting.start()
    starting.join(TIMEOUT_S)
    assert raised, "it never returns"
    return raised[0]


def _left_nothing_behind(server: Server) -> None:
    with pytest.raises(OSError, match="refused"):
        Peer(server._target[1:3])
    server.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


def test_no_loop_is_a_clear_error(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "SelectorEventLoop", _fails(NO_FILES))
    error = _start(server)
    assert isinstance(error, ConfigError)
    assert "Too many open files" in str(error)
    _left_nothing_behind(server)


@pytest.mark.parametrize("failure", [NO_FILES, ValueError("a bug")])
def test_what_fails_in_its_thread_is_raised(
    server: Server, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    monkeypatch.setattr(server_module, "Places", _fails(failure))
    error = _start(server)
    assert isinstance(error, ConfigError)
    assert str(failure) in str(error)
    assert error.__cause__ is failure
    _left_nothing_behind(server)


def test_a_loop_that_takes_no_server_is_a_clear_error(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.SelectorEventLoop, "create_server", _no_server)
    assert isinstance(_start(server), ConfigError)
    _left_nothing_behind(server)


def test_after_a_failure_it_can_be_started_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(server_module, "Places", _fails(NO_FILES))
        assert isinstance(_start(server), ConfigError)
    assert _start(server) is None
    with Peer(server.advertised):
        pass
    server.stop()


def test_stop_takes_a_thread_that_has_ended_by_itself(make_server: MakeServer, broker: FakeBroker) -> None:
    server = make_server(broker.address)
    thread, loop, stopping = server._thread, server._loop, server._stopping
    assert thread is not None
    assert loop is not None
    assert stopping is not None
    loop.call_soon_threadsafe(stopping.set)
    thread.join(TIMEOUT_S)
    assert loop.is_closed()
    server.stop()


@pytest.mark.parametrize("refusal", [OSError("not permitted"), ValueError("not allowed to raise maximum limit")])
def test_a_limit_that_may_not_be_raised_leaves_fewer_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refusal: Exception
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1256, 100_000))
    monkeypatch.setattr(resource, "setrlimit", _fails(refusal))
    assert server_module.affordable(10_000) == 500
    assert str(refusal) in caplog.text
    assert "takes 500 connections, not 10000" in caplog.text
