"""The endpoint: a relay between Kafka clients and a broker that adds the partition modes (KIP-694).

``session`` is one connection's conversation without any IO: frames in, actions out. ``desk`` names what a session asks
of the controller process and what it wants done; ``api_versions``, ``metadata``, ``authorise`` and ``changes`` are the
requests it does not merely pass on.
"""
