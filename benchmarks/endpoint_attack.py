"""How long an operator's shrink takes while connections without any right send the dearest requests there are.

The controller is a process of its own. The attackers are another one: each connection sends the next request as soon as
it has the response to the last, and is made anew when the endpoint closes it. They name topics that do not exist, so
the brokers refuse all of it. Half of them send one topic with as many empty assignments as 64 KiB hold, half as many
topics as the endpoint still decodes.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from benchmarks.harness import Result
from benchmarks.setting import Setting
from modeaware import AdminClient, DeletePartitions
from modeaware.wire import codec
from modeaware.wire.client import CLIENT_NAME
from tests.support.endpoint import free_port
from tests.support.takeover import ControllerProcess

CONNECTIONS = (10, 60, 300)
MOST_S = 3.0
PARTITIONS = 4
SHRINKS = 10
_TIMEOUT_S = 60.0
_REQUESTS_S = 5.0
"""How long the attack lasts before the first shrink."""
_EMPTY_ASSIGNMENTS = 32_400
_TOPICS = 1_000
_LENGTH_BYTES = 4


def measure(setting: Setting) -> Iterator[Result]:
    log = setting.make_log()
    conf = {"bootstrap.servers": setting.bootstrap_servers}
    admin = AdminClient({**conf, "modeaware.mode.log.topic": log.topic})
    address = ("127.0.0.1", free_port())
    with tempfile.TemporaryDirectory() as folder:
        controller = ControllerProcess(conf, log.topic, Path(folder), listen="{}:{}".format(*address))
        try:
            controller.wait_until_it_says("active: epoch")
            for connections in (0, *CONNECTIONS):
                yield _measure(setting, admin, address, connections)
        finally:
            controller.kill()


def _measure(setting: Setting, admin: AdminClient, address: tuple[str, int], connections: int) -> Result:
    topics = [setting.make_topic(PARTITIONS) for _ in range(setting.rounds(SHRINKS))]
    arguments = [sys.executable, "-m", "benchmarks.endpoint_attack", address[0], str(address[1]), str(connections)]
    attack = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    times_s: list[float] = []
    try:
        assert attack.stdout is not None
        attack.stdout.readline()  # its requests are made
        time.sleep(_REQUESTS_S)  # all of them are connected and in full swing
        for topic in topics:
            start_s = time.monotonic()
            admin.delete_partitions({topic: DeletePartitions(1)}, request_timeout=_TIMEOUT_S)[topic].result()
            times_s.append(time.monotonic() - start_s)
    finally:
        told, _ = attack.communicate("")
    details = {"median_s": round(statistics.median(times_s), 2), "shrinks": len(times_s), "attack": told.strip()}
    name = f"a shrink beside {connections} hostile connections, longest"
    return Result(name, max(times_s), "s", below=MOST_S if connections else None, details=details)


# The attackers' process


def _requests() -> list[bytes]:
    topic = codec.CreatePartitionsRequest.CreatePartitionsTopic
    empty = [topic.CreatePartitionsAssignment(broker_ids=[]) for _ in range(_EMPTY_ASSIGNMENTS)]
    one = [topic(name="hostile", count=_EMPTY_ASSIGNMENTS, assignments=empty)]
    many = [topic(name=f"hostile-{number}", count=9, assignments=None) for number in range(_TOPICS)]
    asked = [codec.CreatePartitionsRequest(topics=topics, timeout_ms=60_000) for topics in (one, many)]
    return [_framed(codec.encode_request(each, 2, 1, "hostile")) for each in asked]


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(_LENGTH_BYTES, "big") + payload


async def _attack(host: str, port: int, connections: int) -> str:
    hello = codec.ApiVersionsRequest(client_software_name=CLIENT_NAME, client_software_version="1")
    begin, requests = _framed(codec.encode_request(hello, 3, 1, "hostile")), _requests()
    answered, opened = count(), count()

    async def converse(request: bytes) -> None:
        reader, writer = await asyncio.open_connection(host, port, local_addr=("127.0.0.2", 0))
        next(opened)
        try:
            for payload in (begin, *[request] * 1_000_000):
                writer.write(payload)
                length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
                await reader.readexactly(length)
                next(answered)
        finally:
            writer.close()

    async def insist(request: bytes) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                await converse(request)
            await asyncio.sleep(0.01)

    print(flush=True)
    tasks = [asyncio.create_task(insist(requests[number % 2])) for number in range(connections)]
    await asyncio.to_thread(sys.stdin.read)  # until the benchmark ends it
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return f"{next(opened)} connections opened, {next(answered)} responses"


if __name__ == "__main__":
    print(asyncio.run(_attack(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
