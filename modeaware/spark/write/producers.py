"""One producer per process and configuration, kept from task to task: Spark runs many short tasks in one worker."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from modeaware.config import split_client_config
from modeaware.confluent.producer import Producer
from modeaware.errors import ConfigError, ModeSourceError, ViewTimeout
from modeaware.topic_view import NO_EPOCH, TopicView
from modeaware.views.registry import acquire

logger = logging.getLogger(__name__)

MOST = 8
"""How many producers a process keeps that nobody uses now."""

_REFUSED = {
    "on_delivery": "the writer looks after deliveries itself, and raises what fails",
    "delivery.report.only.error": "the writer looks after deliveries itself",
    "transactional.id": "Spark runs tasks again and side by side, which one transactional id does not allow",
}
# Whoever sets one of these has a say in idempotence, which librdkafka would refuse together with some of their values.
_SAYS_IDEMPOTENCE = frozenset(
    {
        "enable.idempotence",
        "acks",
        "request.required.acks",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "retries",
        "message.send.max.retries",
        "queuing.strategy",
        "default.topic.config",
    }
)
_SAYS_LINGER = frozenset({"linger.ms", "queue.buffering.max.ms", "default.topic.config"})
LINGER_MS = 50


def producer_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """``conf`` as the writers use it, with delivery reports for failures alone.

    Where it says nothing about that itself, it is idempotent (retries keep the order of a task's records), and
    ``linger.ms`` is 50 in place of 5: whole batches are what a task is about, and it does not linger at its end.

    Raises:
        ConfigError: it holds what a writer cannot respect: ``on_delivery``, ``delivery.report.only.error``,
            ``transactional.id``, or an unknown or bad ``modeaware.`` setting.
    """
    for name, why in _REFUSED.items():
        if conf.get(name) is not None:
            raise ConfigError(f"{name}: {why}: leave it out")
    split_client_config(conf)
    ours: dict[str, Any] = {"delivery.report.only.error": True}
    if not _SAYS_IDEMPOTENCE.intersection(conf):
        ours["enable.idempotence"] = True
    if not _SAYS_LINGER.intersection(conf):
        ours["linger.ms"] = LINGER_MS
    return {**conf, **ours}


def key_of(conf: Mapping[str, Any]) -> str:
    """Tells configurations apart, without showing what is in them. For one that holds functions it is the same only as
    long as it is made once and passed on."""
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps(sorted(conf.items(), key=lambda item: item[0]))  # type: ignore[no-untyped-call] # pyspark's
    return hashlib.sha256(pickled).hexdigest()


class Shared:
    """A producer that tasks of one process use, one after the other or side by side.

    Attributes:
        producer: ours.
        broken: it has a fatal error: the next task gets another one.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self.config, rest = split_client_config(conf)
        self.producer = Producer(producer_conf(conf))
        self.views = acquire(rest, self.config)
        self._turn = threading.Condition()
        self._versions: dict[str, tuple[int, int]] = {}
        self.views.subscribe(self._heard)  # after the producer, which has been told whenever this is
        self.users = 0
        self.broken = False

    def await_version(self, topic: str, version: tuple[int, int]) -> None:
        """Wait until the modes of ``topic`` are known as of ``version`` at least.

        Raises:
            ViewTimeout: they are not within ``modeaware.view.timeout.ms``.
        """
        if self._follows(topic, version):
            return
        timeout_s = self.config.view_timeout_ms / 1000
        failure: Exception | None = None
        if self.views.wait_ready(timeout_s):
            try:
                self.views.refresh(timeout_s)
            except ModeSourceError as error:
                failure = error
        with self._turn:  # the view may be there a moment before the producer is told of it
            followed = self._turn.wait_for(lambda: self._follows(topic, version), 0 if failure else timeout_s)
        if not followed:
            view = self.views.view(topic) if self.views.ready else TopicView.unlisted(topic)
            why = failure or self.views.error() or "its mode source is behind"
            raise ViewTimeout(
                f"{topic}: the job was planned by epoch {version[1]} of its modes, and this executor knows only "
                f"{view.describe()}: {why}; nothing was written",
                topic=topic,
            )

    def _follows(self, topic: str, version: tuple[int, int]) -> bool:
        return version <= NO_EPOCH or self._versions.get(topic, NO_EPOCH) >= version

    def _heard(self, changed: Mapping[str, TopicView]) -> None:
        with self._turn:
            self._versions.update({topic: view.version for topic, view in changed.items()})
            self._turn.notify_all()

    def close(self) -> None:
        """Give the connections back; what is still queued is tried for a moment."""
        self.views.close()
        self.producer.flush(1.0)
        self.producer.close()


class _Kept:
    """The producers of this process, least recently used first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_key: OrderedDict[str, Shared] = OrderedDict()

    def borrow(self, key: str, conf: Mapping[str, Any]) -> Shared:
        with self.lock:
            shared = self.by_key.get(key)
            if shared is None or shared.broken:
                shared = self.by_key[key] = Shared(conf)
            self.by_key.move_to_end(key)
            shared.users += 1
        return shared

    def give_back(self, key: str, shared: Shared) -> None:
        with self.lock:
            shared.users -= 1
            gone = []
            if shared.broken and not shared.users:
                gone.append(shared)
                if self.by_key.get(key) is shared:
                    del self.by_key[key]
            idle = [name for name, each in self.by_key.items() if not each.users]
            gone += [self.by_key.pop(name) for name in idle[: max(len(idle) - MOST, 0)]]
        for each in gone:
            each.close()

    def forget_parent(self) -> None:
        # librdkafka's handles must not be destroyed in a forked child: they are left as they lie.
        self.lock = threading.Lock()
        _of_parents.append(self.by_key)
        self.by_key = OrderedDict()


_of_parents: list[OrderedDict[str, Shared]] = []
_kept = _Kept()
os.register_at_fork(after_in_child=_kept.forget_parent)


def borrow(key: str, conf: Mapping[str, Any]) -> Shared:
    """The producer of this process for ``conf``; :func:`give_back` it. Thread-safe.

    Raises:
        ConfigError, KafkaException: as from :class:`modeaware.Producer`, and as :func:`producer_conf` says.
    """
    return _kept.borrow(key, conf)


def give_back(key: str, shared: Shared) -> None:
    """The task is done with it. It stays for the next one, unless it is broken or too many lie idle."""
    _kept.give_back(key, shared)


def close_idle() -> None:
    """Close the producers that nobody uses now, for processes that go on without writing."""
    with _kept.lock:
        idle = [_kept.by_key.pop(name) for name in [n for n, each in _kept.by_key.items() if not each.users]]
    for shared in idle:
        shared.close()
