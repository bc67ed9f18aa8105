"""What one peer of the endpoint, or all of them, may take."""

from __future__ import annotations

from dataclasses import dataclass

from modeaware.wire.frames import MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES


@dataclass(frozen=True)
class Limits:
    """Bounds in connections, bytes, requests and seconds. Each is checked before anything is kept for it.

    Attributes:
        connections: how many client connections may be open at once (1200); one more is closed at once.
        request_bytes: the largest request of a client, without its length (1 MiB).
        change_bytes: the largest DeletePartitions, CreatePartitions or AlterGroupRules request (64 KiB: about two
            thousand topics). They are decoded in the one thread that serves everybody, and a small request can name
            many things: the worst one takes some 0.2 s there.
        modes_bytes: the largest request for KIP-694's Metadata (256 KiB: about eight thousand topics by name).
        versions_bytes: the largest ApiVersions request (4 KiB). It comes before anybody has authenticated himself.
        response_bytes: the largest answer that is made here (16 MiB), one with modes among them.
        upstream_bytes: the largest answer taken from a broker (32 MiB). It reaches the client as it came, or, for
            clients that do not know modes, with other nodes, whatever its size then is.
        pipeline: how many requests of one connection may be without an answer (100); the next is read when one has
            its answer.
        held_bytes: how many bytes of requests one connection may have waiting behind another (2 MiB), as ``pipeline``.
        cache_bytes: how many bytes of Metadata answers are kept for all connections (64 MiB).
        idle_s: how long a connection may go without completing a request, as Kafka's ``connections.max.idle.ms``; and
            how long a peer may take to accept what it is sent (600 s).
    """

    connections: int = 1_200
    request_bytes: int = MAX_REQUEST_BYTES
    change_bytes: int = 65_536
    modes_bytes: int = 262_144
    versions_bytes: int = 4_096
    response_bytes: int = MAX_RESPONSE_BYTES
    upstream_bytes: int = 33_554_432
    pipeline: int = 100
    held_bytes: int = 2_097_152
    cache_bytes: int = 67_108_864
    idle_s: float = 600.0
