"""Commits that this package makes through an application's consumer, without blocking the polling thread.

A synchronous commit of librdkafka blocks until a coordinator has answered, possibly for ever. So these commits are
asynchronous: librdkafka queues their results for the next poll, which calls the callback ``on_commit`` with each
result. The same callback gets the results of automatic commits and of the application's asynchronous commits. A result
does not identify its commit. So this module replaces ``on_commit`` by a callback that recognises the results of this
package's commits, and passes all others to the application's callback:

* A commit of given offsets is recognised by its partitions, offsets and metadata.
* A commit of the stored offsets is recognised by the partitions that are assigned to the library. An automatic commit
  has the same partitions, so its result may be mistaken for ours. Then the application gets our result instead, with
  the same partitions.
* If nothing is stored, our commit of the stored offsets results in ``_NO_OFFSET``, and an automatic commit has no
  result. So for each such commit of ours, one ``_NO_OFFSET`` is not passed to the application.

While no results are awaited, the callback is the application's own, or a function in C
(:mod:`modeaware.confluent.retarget` explains why). Only the polling thread may use this module.
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
    """A commit whose result is pending; ``content`` identifies the result."""

    action: Commit | CommitStored
    content: frozenset[Any]

    def has(self, parts: list[TopicPartition]) -> bool:
        if isinstance(self.action, Commit):
            return self.content == {(key_of(p), p.offset, metadata_of(p).rstrip("\0")) for p in parts}
        return not parts or self.content == set(map(key_of, parts))


class OwnCommits:
    """The commits of this package through one consumer, and the results of all commits.

    Args:
        conf: the settings of the consumer.

    Attributes:
        answered: called with the result of each commit of this package.
        reported: called with the result of each other commit.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        given: Any = conf.get(_ON_COMMIT)
        self._on_commit: Target | None = given if callable(given) else None
        self._switch = Switch(self._on_commit or operator.is_)
        self._own = self._switch.target
        self._taking = weakly(self._take)
        self._sent: list[_Sent] = []
        self._flushes = 0  # commits of the stored offsets that may still result in _NO_OFFSET
        self.answered: Answer = lambda _action, _error, _parts: None
        self.reported: Callable[[KafkaError | None, list[TopicPartition]], None] = lambda _error, _parts: None

    def listening(self, conf: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the consumer with a callback that takes the results."""
        is_refused = _ON_COMMIT in conf and self._on_commit is None
        return dict(conf) if is_refused else {**conf, _ON_COMMIT: self._switch.call}

    @property
    def pending(self) -> bool:
        """Whether a result is pending."""
        return bool(self._sent)

    def listen(self, wanted: bool) -> None:
        """Take the results of all commits if ``wanted``. If not, take only those of this package's commits."""
        self._switch.point_to(self._taking if wanted or self._sent else self._own)

    def send(self, stock: Any, action: Commit | CommitStored) -> None:
        """Send the commit of ``action``; its result follows at a later poll.

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
