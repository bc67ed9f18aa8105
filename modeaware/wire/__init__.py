"""Kafka's wire protocol: one codec without IO, and the transports that use it.

``frames`` cuts bytes into frames and reads single fields. ``strict`` reads messages by their schemas. ``codec`` encodes
and decodes messages, and ``messages`` makes them from commands. ``capabilities`` reads which features a server has.
``transport`` is the blocking transport: ``brokers`` sends ``requests`` over it to any broker, ``client`` sends commands
to a controller. ``probe`` requests capabilities from bootstrap servers. The asyncio transport is the endpoint's.
"""
