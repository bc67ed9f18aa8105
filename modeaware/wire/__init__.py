"""Kafka's wire protocol: one sans-IO codec, and the transports over it.

``frames`` cuts bytes into frames and reads them by hand; ``strict`` reads messages by their schemas; ``codec`` encodes
and decodes ours, ``messages`` turns commands into them. ``capabilities`` says what a server supports. ``transport`` is
the blocking transport, over which ``brokers`` sends ``requests`` to any broker and ``client`` commands to a controller;
``probe`` asks bootstrap servers for their capabilities. The asyncio transport is the endpoint's.
"""
