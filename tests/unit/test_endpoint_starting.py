"""An endpoint's server that cannot begin to serve: it says so, and leaves nothing behind."""

from __future__ import annotations

import errno
import threading
from typing import Any

import pytest

from modeaware.endpoint import server as server_module
from modeaware.endpoint.server import THREAD_NAME, Server
from modeaware.endpoint.upstream import Upstream
from modeaware.errors import ConfigError
from tests.support.endpoint import TIMEOUT_S, Peer, free_port

NO_FILES = OSError(errno.EMFILE, "Too many open files")


def _fails(failure: Exception) -> Any:
    def fail(*arguments: Any, **named: Any) -> Any:
        raise failure

    return fail


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def server(port: int) -> Server:
    nothing: Any = None  # nobody gets as far as to ask
    return Server(f"127.0.0.1:{port}", nothing, nothing, nothing, Upstream([("127.0.0.1", 1)]))


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


def _left_nothing_behind(server: Server, port: int) -> None:
    with pytest.raises(OSError, match="refused"):
        Peer(("127.0.0.1", port))
    server.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


@pytest.mark.parametrize("failure", [NO_FILES, ValueError("a bug")])
def test_what_fails_in_its_thread_is_raised(
    server: Server, port: int, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    monkeypatch.setattr(server_module, "Places", _fails(failure))
    error = _start(server)
    assert isinstance(error, ConfigError)
    assert str(failure) in str(error)
    assert error.__cause__ is failure
    _left_nothing_behind(server, port)
