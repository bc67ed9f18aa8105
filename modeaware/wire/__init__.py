"""Kafka's wire protocol: one sans-IO codec, and the transports over it.

``frames`` cuts bytes into frames and reads single fields. ``strict`` reads messages by their schemas. ``codec`` encodes
and decodes messages, and ``messages`` makes them from commands. ``capabilities`` has the features of a server.
``transport`` is the blocking transport: ``brokers`` sends ``requests`` over it to any broker, ``client`` sends commands
to a controller. ``probe`` requests capabilities from bootstrap servers. The asyncio transport is the endpoint's.
"""
