"""Commits that this package makes through an application's consumer, none of which blocks the polling thread.

A synchronous commit of librdkafka waits until a coordinator has answered, which may be never. So these commits are
asynchronous. librdkafka queues their results for the next poll, where confluent_kafka gives them to ``on_commit`` of
the settings, as it does with the results of automatic commits and of asynchronous ones of the application. No result
says which commit it is of. So ``on_commit`` is a callback of this module, which takes the results of its own commits
and gives all others to the application's:

* the result of a commit of offsets has these partitions, offsets and metadata;
* the result of a commit of what is stored has the partitions that are assigned to the library. That of an automatic
  commit has the same, and may be taken in its place: then the application is given the other one, which says no less.
  But an automatic commit is silent where nothing is stored, so such a result is never given to the application.

While there is nothing to listen for, the callback is the application's own, or a function in C
(:mod:`modeaware.confluent.retarget` says why). All of it is for the polling thread.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from modeaware.clients.actions import Commit, CommitStored
from modeaware.confluent.offsets import key_of, metadata_of
from modeaware.confluent.retarget import Switch, Target, weakly
from modeaware.librdkafka import KafkaError, TopicPartition

Answer = Callable[[Commit | CommitStored, KafkaError | None, list[TopicPartition]], None]
_ON_COMMIT = "on_commit"


class _Sent(NamedTuple):
    """A commit without a result so far; ``content`` is what its result has."""

    action: Commit | CommitStored
    content: frozenset[Any]

    def has(self, parts: list[TopicPartition]) -> bool:
        if isinstance(self.action, Commit):
            return self.content == {(key_of(p), p.offset, metadata_of(p).rstrip("\0")) for p in parts}
        return not parts or self.content == set(map(key_of, parts))


class OwnCommits:
    """The commits of this package through one consumer, and the results of all.

    Args:
        conf: the settings of the consumer.

    Attributes:
        answered: is called with the result of each own commit.
        reported: is called with the results of others.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        given: Any = conf.get(_ON_COMMIT)
        self._on_commit: Target | None = given if callable(given) else None
        self._switch = Switch(self._on_commit or operator.is_)
        self._own = self._switch.target
        self._taking = weakly(self._take)
        self._sent: list[_Sent] = []
        self._flushes = 0  # of what is stored, whose results may say that nothing was
        self.answered: Answer = lambda _action, _error, _parts: None
        self.reported: Callable[[KafkaError | None, list[TopicPartition]], None] = lambda _error, _parts: None

    def listening(self, conf: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the consumer with a callback that takes the results."""
        is_refused = _ON_COMMIT in conf and self._on_commit is None
        return dict(conf) if is_refused else {**conf, _ON_COMMIT: self._switch.call}

    @property
    def pending(self) -> bool:
        """Whether a result is to come."""
        return bool(self._sent)

    def listen(self, wanted: bool) -> None:
        """Take the results of others as well; else those of own commits alone."""
        self._switch.point_to(self._taking if wanted or self._sent else self._own)

    def send(self, stock: Any, action: Commit | CommitStored) -> None:
        """Commit what ``action`` says; its result follows at a later poll.

        Raises:
            KafkaException: nothing was sent.
        """
        self.listen(True)
        if isinstance(action, Commit):
            parts = [TopicPartition(*key, *at) for key, at in sorted(action.offsets.items())]
            sent = _Sent(action, frozenset((key, at.offset, at.metadata) for key, at in action.offsets.items()))
            stock.commit(offsets=parts, asynchronous=True)
        else:
            sent = _Sent(action, frozenset(map(key_of, stock.assignment())))
            stock.commit(asynchronous=True)
            self._flushes += 1
        self._sent.append(sent)

    def _take(self, error: KafkaError | None, parts: list[TopicPartition]) -> None:
        sent = next((commit for commit in self._sent if commit.has(parts)), None)
        is_empty = error is not None and error.code() == KafkaError._NO_OFFSET and self._flushes > 0
        self._flushes -= is_empty
        if sent is not None:
            self._sent.remove(sent)
            self.answered(sent.action, error, parts)
        elif not is_empty:
            self.reported(error, parts)
            if self._on_commit is not None:
                self._on_commit(error, parts)
