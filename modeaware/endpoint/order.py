"""Answers in the order of the requests, whoever gives them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from modeaware.endpoint.changes import Change


class Ended(Exception):
    """The conversation cannot go on; the text says why. Stays within this package."""


@dataclass(slots=True, repr=False)
class Slot:
    """A request that awaits its answer.

    Attributes:
        asked: the correlation id the broker's answer must have.
        told: wants to see the broker's answer.
        rewrite: makes the client's answer from the broker's; None: it is the same.
        limited: what ``rewrite`` makes counts as made here. Else it is the broker's but for some bytes.
        change: the broker's answer is no answer of the client's, but about the rights to this.
        answer: an answer of our own, which waits for those in front of it; the broker was not asked.
    """

    asked: int = 0
    told: Callable[[bytes], None] | None = None
    rewrite: Callable[[bytes], bytes] | None = None
    limited: bool = True
    change: Change | None = None
    answer: bytes | None = None


class Order:
    """Requests that await their answers. What stands in front always waits for the broker.

    Args:
        send: sends an answer to the client.
        answer_bytes: the largest one that is made here; the broker's own are not looked at, changed in a few bytes or
            not.
    """

    def __init__(self, send: Callable[[bytes], None], answer_bytes: int) -> None:
        self._send = send
        self._answer_bytes = answer_bytes
        self._slots: deque[Slot] = deque()
        self.held_bytes = 0
        """Of answers of our own that wait for those in front of them."""

    def __len__(self) -> int:
        return len(self._slots)

    def clear(self) -> None:
        self._slots.clear()
        self.held_bytes = 0

    def asked(self, slot: Slot) -> None:
        """The broker is asked: its answer is awaited behind all others."""
        self._slots.append(slot)

    def answered_here(self, answer: bytes) -> None:
        """An answer of our own, behind all others.

        Raises:
            Ended: it is too large.
        """
        self._check_size(answer)
        self._slots.append(Slot(answer=answer))
        self.held_bytes += len(answer)
        self._send_ready()

    def answered(self, payload: bytes) -> tuple[Change, bytes] | None:
        """The broker has answered. What was asked for a change is given back, with the answer.

        Raises:
            Ended: nothing was asked of the broker, or something else; or the answer made of it is too large.
            MalformedFrame: it cannot be read.
        """
        if not self._slots:
            raise Ended("the broker answered what it was not asked")
        slot = self._slots[0]
        if payload[:4] != slot.asked.to_bytes(4, "big", signed=True):
            raise Ended("the broker answered out of order")
        if slot.told is not None:
            slot.told(payload)
        change = slot.change
        if change is None:
            if slot.rewrite is not None:
                payload = slot.rewrite(payload)
                if slot.limited:
                    self._check_size(payload)
            self._send(payload)
        self._slots.popleft()
        self._send_ready()
        return None if change is None else (change, payload)

    def _send_ready(self) -> None:
        while self._slots and (answer := self._slots[0].answer) is not None:
            self._slots.popleft()
            self.held_bytes -= len(answer)
            self._send(answer)

    def _check_size(self, answer: bytes) -> None:
        if len(answer) > self._answer_bytes:
            raise Ended(f"an answer of {len(answer)} bytes; {self._answer_bytes} are made here")
