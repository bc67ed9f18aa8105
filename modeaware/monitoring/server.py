"""The read-only HTTP server of a controller: metrics, health, the status page."""

from __future__ import annotations

import ipaddress
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from modeaware.callouts import InnerLock, get_logger
from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.endpoint.server import resolve
from modeaware.errors import ConfigError
from modeaware.wire.security import split_address

logger = get_logger("modeaware.monitoring")

MAX_CONNECTIONS = 32
"""The most connections. A further connection closes the oldest one, so that a health check always gets through."""
CONNECTION_S = 10.0
"""The longest time that a connection may last, however slowly the client reads or writes."""
SILENCE_S = 5.0
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Answer(NamedTuple):
    """A response, without the headers that all responses have."""

    status: HTTPStatus
    content_type: str
    body: bytes


_MISDIRECTED = Answer(
    HTTPStatus.MISDIRECTED_REQUEST,
    "text/plain; charset=utf-8",
    b"421: served on the loopback interface, and not by the name in the header Host: ask by its address, and have "
    b"a proxy do so\n",
)
Pages = Callable[[str, str], Answer | None]
"""Returns the answer for a path and the header ``Accept``; None if there is no such page."""


def check_listen(listen: str) -> None:
    """Raise ConfigError unless ``listen`` is of the form ``HOST:PORT``. No name is looked up."""
    try:
        split_address(listen)
    except ValueError as error:
        raise ConfigError(f"--http: {error}. Write a host and a port, for example 127.0.0.1:9404") from error


class MonitoringServer:
    """Serves ``pages`` with GET and HEAD, one short connection per request, in its own threads.

    One thread calls ``start`` and ``stop``.

    Args:
        listen: ``HOST:PORT``. With port 0, the server takes a free one.
    """

    def __init__(self, listen: str, pages: Pages, clock: Clock = SYSTEM_CLOCK) -> None:
        self._listen = listen
        self._pages = pages
        self._clock = clock
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Return ``host:port``, once the server has started."""
        assert self._server is not None, "not started"
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    @property
    def reachable_address(self) -> str:
        """Return ``host:port`` for other hosts, once started. If all interfaces are served, use this host's name."""
        host, _, port = self.address.rpartition(":")
        return f"{socket.gethostname()}:{port}" if host in ("0.0.0.0", "[::]") else self.address

    def start(self) -> None:
        """Listen and serve.

        Raises:
            ConfigError: the address cannot be used: not HOST:PORT, not this machine's, or taken.
        """
        try:
            target = resolve(self._listen)
            named = _host_of(self._listen) if target.loopback else None
            self._server = _Server(target.family, (target.host, target.port), self._pages, self._clock, named)
        except (ConfigError, OSError, OverflowError) as error:
            raise ConfigError(
                f"--http {self._listen}: cannot listen there: {error}. Name another address, or stop the process that "
                "uses it"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="modeaware-http", daemon=True)
        self._thread.start()
        logger.info("metrics, health and status page at http://%s/", self.address)

    def stop(self) -> None:
        """Close all connections, and return when the server's threads have ended. Idempotent."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.close_all()
            self._server.server_close()
        self._thread = None


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # server_close waits for the threads, for CONNECTION_S at most
    request_queue_size = 64

    def __init__(self, family: int, address: Any, pages: Pages, clock: Clock, named: str | None) -> None:
        self.address_family = family
        self.pages = pages
        self.named = named
        self._clock = clock
        self._lock = InnerLock()
        self._open: dict[socket.socket, float] = {}
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without http.server's look-up of the host's name, which may take long if DNS does not answer."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            oldest = next(iter(self._open)) if len(self._open) >= MAX_CONNECTIONS else None
            if oldest is not None:
                del self._open[oldest]
                _end(oldest)
            self._open[request] = self._clock.monotonic_s()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """End connections that have lasted too long. The server calls this twice a second."""
        self._end_those_before(self._clock.monotonic_s() - CONNECTION_S)

    def close_all(self) -> None:
        self._end_those_before(float("inf"))

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if isinstance(sys.exception(), OSError):
            logger.debug("a connection of %s has ended early", client_address, exc_info=True)
        else:
            logger.exception("a request of %s could not be answered: this is a bug in modeaware", client_address)

    def _end_those_before(self, begun_s: float) -> None:
        with self._lock:
            for connection in [one for one, since_s in self._open.items() if since_s < begun_s]:
                del self._open[connection]
                _end(connection)


def _host_of(authority: str) -> str:
    """Return the host in ``host:port``; empty if there is none."""
    try:
        return (urlsplit(f"//{authority.strip()}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_own(asked: str, named: str) -> bool:
    """Return whether a request for the host ``asked`` can be meant for a loopback server named ``named``.

    A web site's name may resolve to 127.0.0.1. The site's scripts could then read our pages as if they were the site's
    own (DNS rebinding). A request for an address or ``localhost`` cannot come from such scripts.
    """
    host = _host_of(asked)
    if host in ("localhost", named) or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _end(connection: socket.socket) -> None:
    """End a connection. Its thread then closes it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        logger.debug("a connection had ended already: %s", error)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = SILENCE_S
    server_version, sys_version = "modeaware", ""

    def do_GET(self) -> None:
        asked = self.headers.get("Host")
        if asked and self.server.named is not None and not _is_own(asked, self.server.named):
            self._send(_MISDIRECTED)
            return
        path = self.path.partition("?")[0]
        answer = self.server.pages(path, self.headers.get("Accept", ""))
        if answer is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self._send(answer)

    def do_HEAD(self) -> None:
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send the error as plain text, without any part of the request."""
        self.close_connection = True
        status = HTTPStatus(code)
        self._send(Answer(status, "text/plain; charset=utf-8", f"{status.value} {status.phrase}\n".encode()))

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if getattr(self, "command", None) != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug("%s: " + format, self.client_address[0], *args)
