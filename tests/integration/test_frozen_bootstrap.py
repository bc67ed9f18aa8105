"""A broker that takes connections and never answers is passed over, at the start as well."""

from __future__ import annotations

import socket
from argparse import Namespace
from contextlib import closing

from modeaware.cli.options import connect, connection
from tests.conftest import Kafka


def test_a_silent_first_server_does_not_end_a_command(kafka: Kafka) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]},{kafka.bootstrap_servers}"
        cluster = connect(connection(Namespace(bootstrap_server=servers, command_config=None)))
        with closing(cluster):
            assert cluster.brokers.node_ids()
