"""A relay between Java tools of Kafka and a broker: keeps every frame, and lets the tools see older versions only."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from modeaware.wire import stock
from modeaware.wire.client_tls import split_address

UNSUPPORTED_VERSION = 35
_DESCRIBE_TOPIC_PARTITIONS = 75  # asked in place of Metadata where it is offered
_LENGTH = struct.Struct(">i")


@dataclass(frozen=True)
class Exchange:
    """A request as the Java client encoded it, and the broker's answer (both without the length)."""

    header: stock.Header
    request: bytes
    response: bytes


class RecordingRelay:
    """Listens on a port of its own; each connection gets one to the broker, and one request is on its way at a time.

    Brokers in Metadata get the relay's address, so that everything goes through it.

    Args:
        broker: ``host:port``.
        highest: api key -> highest version the client is to use; others as the broker has them.
    """

    def __init__(self, broker: str, highest: Mapping[int, int]) -> None:
        self._broker = split_address(broker)
        self._highest = {**{key: versions[1] for key, versions in stock.SUPPORTED_VERSIONS.items()}, **highest}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept, name="relay")]
        self.exchanges: list[Exchange] = []
        self.errors: list[BaseException] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for each in list(self._open):
            with suppress(OSError):  # the peer was faster
                each.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join()
        for each in self._open:
            each.close()

    def of(self, api_key: int) -> list[Exchange]:
        return [each for each in self.exchanges if each.header.api_key == api_key]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            upstream = socket.create_connection(self._broker)
            self._open += [client, upstream]
            self._threads.append(threading.Thread(target=self._serve, args=(client, upstream), name="relay"))
            self._threads[-1].start()

    def _serve(self, client: socket.socket, upstream: socket.socket) -> None:
        try:
            while (request := _read_frame(client)) is not None:
                _write_frame(client, self._answer(request, upstream))
        except OSError:  # a tool that ends, or the relay that does
            return
        except Exception as error:  # noqa: BLE001 - a test looks at it
            self.errors.append(error)
        finally:
            for each in (client, upstream):
                with suppress(OSError):  # it was closed already
                    each.shutdown(socket.SHUT_RDWR)

    def _answer(self, request: bytes, upstream: socket.socket) -> bytes:
        header = stock.peek_header(request)
        if header.api_key == stock.API_VERSIONS_KEY and header.api_version > self._highest[header.api_key]:
            # As KIP-511 has it: in version 0, with the versions that are spoken.
            refusal = stock.ApiVersionsResponse(
                error_code=UNSUPPORTED_VERSION, api_keys=[(header.api_key, 0, self._highest[header.api_key])]
            )
            return stock.encode_response(refusal, 0, header.correlation_id)
        _write_frame(upstream, request)
        response = _read_frame(upstream)
        if response is None:
            raise OSError("the broker closed the connection")
        self.exchanges.append(Exchange(header, request, response))
        if header.api_key in (stock.API_VERSIONS_KEY, stock.METADATA_KEY):
            correlation_id, message = stock.decode_response(response, header.api_key, header.api_version)
            (self._limit if header.api_key == stock.API_VERSIONS_KEY else self._move)(message)
            return stock.encode_response(message, header.api_version, correlation_id)
        return response

    def _limit(self, message: Any) -> None:
        message.api_keys = [each for each in message.api_keys if each.api_key != _DESCRIBE_TOPIC_PARTITIONS]
        for each in message.api_keys:
            each.max_version = min(each.max_version, self._highest.get(each.api_key, each.max_version))

    def _move(self, message: Any) -> None:
        host, port = split_address(self.address)
        for broker in message.brokers:
            broker.host, broker.port = host, port


def _read_frame(connection: socket.socket) -> bytes | None:
    length = _read(connection, _LENGTH.size)
    return None if length is None else _read(connection, _LENGTH.unpack(length)[0])


def _read(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            return None
        data += chunk
    return data


def _write_frame(connection: socket.socket, payload: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(payload)) + payload)
