"""Fuzzing of what strangers' bytes reach first: framing, a session of the endpoint, the decoders of every message.

``make fuzz MINUTES=...`` lets atheris (libFuzzer) look for new branches; a short form without it is one of the tests.
An input is a conversation (:mod:`tests.fuzz.events`), which :mod:`tests.fuzz.play` carries out.
"""
