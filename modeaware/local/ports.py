"""Free TCP ports for brokers."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

# Below the range that systems hand out to outgoing connections (from 32 768 on Linux): while a killed broker is down,
# no client's connection can take its port.
_LOWEST, _HIGHEST = 15_000, 32_000
_choice = random.SystemRandom()  # seeded tests must not all start with the same ports


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """``count`` different ports that nobody listens on now. Another process may be faster: be ready to retry."""
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            port = _choice.randrange(_LOWEST, _HIGHEST)
            taken = held.enter_context(socket.socket())
            try:
                taken.bind((host, port))
            except OSError:
                continue  # in use
            ports.append(port)
    return ports
