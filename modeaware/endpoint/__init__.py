"""The endpoint: a relay between Kafka clients and a broker that adds the partition modes (KIP-694).

``session`` is one connection's conversation without any IO: frames in, actions out; ``facade`` is its interface to the
controller process. ``api_versions``, ``metadata`` and ``changes`` are the requests that are not merely relayed.
``server``, ``connection`` and ``transport`` are the sockets, within ``limits``.
"""
