"""What the footprint's figures are made of."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.footprint import table, use_of

PROGRAM = """
import socket, sys, threading
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("at rest", flush=True)
sys.stdin.read()
"""


def test_threads_connections_and_memory_of_a_process_are_seen() -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at rest\n"
        use = use_of(process.pid)
        process.kill()
    assert use.threads == 2
    assert use.connections == 2  # both ends; the socket that listens is none
    assert use.rss_mib >= use.pss_mib > 1


def test_a_report_becomes_rows() -> None:
    client = {
        "name": "1 producer, 10 topics: RSS on top of plain",
        "figure": 5.48,
        "threads_plain": 4,
        "threads_added": 5,
        "connections_plain": 1,
        "connections_added": 2,
        "rss_plain_mib": 26.8,
    }
    controller = {"name": "controller, 1 topic: RSS", "figure": 53.1, "threads": 20, "connections": 8}
    assert table([client, controller]).splitlines() == [
        "| 1 producer, 10 topics | 4 +5 | 1 +2 | 27 MiB +5.5 |",
        "| controller, 1 topic | 20 | 8 | 53 MiB |",
    ]
