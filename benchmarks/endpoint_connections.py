"""What the endpoint's process holds in memory with 1 000 idle and 100 busy connections, with TLS and without.

The endpoint runs in a process of its own, before a real broker; the connections come from another. Each of them has
asked for ApiVersions and Metadata once, so that each has its connection to the broker; the busy ones go on asking.
"""

from __future__ import annotations

import json
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.harness import Result
from benchmarks.setting import Setting
from modeaware.local import LocalKafka
from modeaware.wire.frames import MAX_RESPONSE_BYTES, FrameReader, frame
from tests.support.secured import SecuredKafka, secret, secured_kafka

IDLE, BUSY = 1_000, 100
BUSY_S = 20.0
TOPICS, PARTITIONS = 20, 50
SOURCES = ("127.0.0.1", "127.0.0.2")  # of one address alone, not so many connections are taken
MOST_MB, MOST_TLS_MB = 300, 800
_FILES = 8_192

SERVE = """
import json, sys
from modeaware.endpoint.transport import server_context
from modeaware.controller.daemon import Controller  # what the process of a real one has loaded
from tests.support.endpoint import relay

conf, files = json.loads(sys.argv[1])
tls = server_context(*files) if files else None

def memory():
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}

with relay(conf, tls=tls) as server:
    print(json.dumps(server.advertised), flush=True)
    for line in sys.stdin:
        print(json.dumps(memory()), flush=True)
"""


class Served:
    """The endpoint's process."""

    def __init__(self, conf: dict[str, str], files: list[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, json.dumps([conf, files])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        host, port = self._line()
        self.address = (str(host), int(port))

    def memory_mb(self) -> dict[str, float]:
        """What it holds now (VmRSS), and held at most (VmHWM)."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        answer: dict[str, float] = self._line()
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the endpoint's process has ended")
        return json.loads(line)


class Asker:
    """One client connection, by hand: a thousand of a client library's would cost more than what is measured."""

    def __init__(self, address: tuple[str, int], source: str, tls: ssl.SSLContext | None, password: str | None) -> None:
        plain = socket.create_connection(address, 60, source_address=(source, 0))
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=address[0])
        self._frames = FrameReader(MAX_RESPONSE_BYTES)
        self._ask(_request(18, 0))
        if password is not None:
            self._ask(_request(17, 1) + b"\0\5PLAIN")
            token = f"\0admin\0{password}".encode()
            self._ask(_request(36, 0) + len(token).to_bytes(4, "big") + token)

    def metadata(self) -> int:
        """Ask for all topics; how large the answer is."""
        return len(self._ask(_request(3, 4) + b"\xff\xff\xff\xff\0"))

    def close(self) -> None:
        self._socket.close()

    def _ask(self, payload: bytes) -> bytes:
        self._socket.sendall(frame(payload, 10_000))
        while True:
            data = self._socket.recv(262_144)
            if not data:
                raise ConnectionError("the endpoint has closed a connection")
            if frames := self._frames.receive(data):
                return frames[0]


def _request(api_key: int, version: int) -> bytes:
    """A header (version 1) with correlation id 1 and the client id "bench"."""
    return api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\0\5bench"


def measure(setting: Setting) -> Iterator[Result]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(_FILES, hard)), hard))
    with ExitStack() as stack:
        plain = stack.enter_context(LocalKafka())
        _make_topics({"bootstrap.servers": plain.bootstrap_servers})
        yield _measure("plaintext", MOST_MB, setting, {"bootstrap.servers": plain.bootstrap_servers}, None)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        secured = secured_kafka(lambda nodes, **more: stack.enter_context(LocalKafka(nodes, **more)), folder)
        _make_topics(secured.conf())
        conf = {name: value for name, value in secured.conf().items() if not name.startswith("sasl.")}
        yield _measure("TLS both ways", MOST_TLS_MB, setting, conf, secured)


def _make_topics(conf: dict[str, str]) -> None:
    admin = AdminClient(conf)
    new = [NewTopic(f"bench-{number}", num_partitions=PARTITIONS) for number in range(TOPICS)]
    for future in admin.create_topics(new).values():
        future.result(60)


def _measure(name: str, most_mb: int, setting: Setting, conf: dict[str, str], secured: SecuredKafka | None) -> Result:
    tls = None if secured is None else ssl.create_default_context(cafile=str(secured.certificate.certificate))
    files = [] if secured is None else [str(secured.certificate.certificate), str(secured.certificate.key)]
    served = Served(conf, files)
    askers: list[Asker] = []
    try:
        empty_mb = served.memory_mb()["VmRSS"]
        for number in range(IDLE + BUSY):
            askers.append(
                Asker(served.address, SOURCES[number % len(SOURCES)], tls, None if tls is None else secret("admin"))
            )
            size = askers[-1].metadata()
        idle_mb = served.memory_mb()["VmRSS"]
        asked = _keep_busy(askers[:BUSY], BUSY_S / 5 if setting.quick else BUSY_S)
        busy_mb = served.memory_mb()
        for asker in askers:  # the idle ones have been kept
            asker.metadata()
    finally:
        for asker in askers:
            asker.close()
        served.close()
    details = {
        "empty_mb": round(empty_mb),
        "connected_mb": round(idle_mb),
        "after_busy_mb": round(busy_mb["VmRSS"]),
        "kb_each": round((idle_mb - empty_mb) * 1024 / len(askers)),
        "answer_kb": round(size / 1024),
        "requests_per_s": round(asked),
    }
    title = f"endpoint's memory at most, {IDLE} idle and {BUSY} busy connections, {name}"
    return Result(title, busy_mb["VmHWM"], "MB", below=most_mb, details=details)


def _keep_busy(askers: list[Asker], duration_s: float) -> float:
    """Each asks again and again; how many answers came in a second."""
    end_s, counts = time.monotonic() + duration_s, [0] * len(askers)

    def ask(number: int) -> None:
        while time.monotonic() < end_s:
            askers[number].metadata()
            counts[number] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(askers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not all(counts):
        raise RuntimeError("a busy connection got no answer")
    return sum(counts) / duration_s
