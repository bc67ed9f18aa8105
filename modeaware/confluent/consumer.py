"""confluent_kafka's Consumer, reading the partitions that are not in mode None."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Mapping
from typing import Any

from modeaware.config import split_client_config, with_process_settings
from modeaware.confluent._attention import Attention, idle_stats, with_stats
from modeaware.confluent._dealing import Dealing
from modeaware.confluent._group_conf import GroupConf
from modeaware.confluent._hints import Hints
from modeaware.confluent._holding import Holding
from modeaware.confluent._offsets import StartOffsets
from modeaware.confluent._rebalance import Callback, Rebalance, Subscription
from modeaware.confluent._redeal import GroupDescriber
from modeaware.confluent.errors import FirstViewTimeout
from modeaware.librdkafka import Consumer as _Consumer
from modeaware.librdkafka import Message, TopicPartition
from modeaware.topic_view import TopicView
from modeaware.views import registry
from modeaware.views.share import Share
from modeaware.views.source import VERIFY_TIMEOUT_S
from modeaware.wire.api_versions import SOFTWARE_NAME, UNDERLYING_NAME

log = logging.getLogger(__name__)

_VIEW_POLL_S = 0.1


class Consumer(_Consumer):
    """``confluent_kafka.Consumer``, aware of partition modes: same constructor forms, methods and callbacks.

    Partitions of mode None are left out of the assignment, and taken up when they are readable again. Settings that
    start with ``modeaware.`` are ours (:class:`modeaware.config.ClientConfig`). What the assignment strategies make
    of retired partitions stands in ``docs/consumer-groups.md``.

    * Without a first view of the modes ``subscribe()`` takes effect at a later ``poll()``; nothing blocks but
      ``poll`` and ``consume``, for as long as they were asked to. After ``modeaware.view.timeout.ms``,
      ``modeaware.on.unknown`` decides: ``block`` goes on waiting (``poll`` returns None), ``writable`` reads every
      partition, ``error`` raises :class:`~modeaware.errors.ViewTimeout` from ``poll``.
    * Every start offset is a number from the moment of the assignment on; ``auto.offset.reset`` is asked then and not
      again.
    * As long as nothing waits to be done, ``poll`` and ``consume`` are librdkafka's own.
    * ``statistics.interval.ms`` is set to 1000 at most, to reach a thread inside an endless ``poll()``. A
      ``stats_cb`` is called as often as it was asked for, and no more.

    Thread-safety: confluent_kafka's (one thread polls).

    Raises:
        ConfigError: an unknown or bad ``modeaware.`` setting.
        KafkaException: as confluent_kafka.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not args and not kwargs:
            super().__init__()  # refuses it, and so does the next where it is called
        if len(args) > 1 or not all(isinstance(arg, dict) for arg in args):
            super().__init__(*args, **kwargs)
            raise TypeError("expected one configuration dict")
        conf = {str(name): value for part in (*args, kwargs) for name, value in part.items()}
        config, rest = split_client_config(with_process_settings(conf))
        stats = idle_stats()
        hints = Hints()
        super().__init__(hints.listening({SOFTWARE_NAME: UNDERLYING_NAME, **with_stats(rest, stats.call)}))
        self._config = config
        self._group_conf = GroupConf.of(rest)
        self._views = views = hints.views = registry.acquire(rest, config)
        stock: Any = super()
        self._stock = stock
        self._offsets = StartOffsets(stock, self._group_conf, views.view, views.recorded)
        self._holding = Holding(stock, self._offsets, views.view)
        self._describer = GroupDescriber(rest, self._group_conf.group_id)
        self._dealing = Dealing(stock, self._group_conf, views, self._describer, time.monotonic)
        self._attention = Attention(stock.poll, stock.consume, self._act, self._due_s, time.monotonic, stats)
        self._rebalance = Rebalance(
            stock,
            self._group_conf,
            self._holding,
            self._offsets,
            self._dealing,
            lambda topics: views.verify(topics, VERIFY_TIMEOUT_S),
            self._attention.call,
            time.monotonic,
        )
        self._pending: Subscription | None = None
        self._waiting_since_s = self._look_again_s = 0.0
        self._bind()
        self._share = Share(self, views, _Listener(self))

    def _bind(self) -> None:
        # Instance attributes, so that nothing of ours runs per record; not where a subclass has its own method.
        if type(self).poll is Consumer.poll:
            self.__dict__["poll"] = self._attention.poll.call
        if type(self).consume is Consumer.consume:
            self.__dict__["consume"] = self._attention.consume.call

    # Reading

    def poll(self, *args: Any, **kwargs: Any) -> Message | None:
        """As ``confluent_kafka.Consumer.poll``; changes of the assignment that wait are applied first."""
        message: Message | None = self._attention.poll.call(*args, **kwargs)
        return message

    def consume(self, *args: Any, **kwargs: Any) -> list[Message]:
        """As ``confluent_kafka.Consumer.consume``; changes of the assignment that wait are applied first."""
        messages: list[Message] = self._attention.consume.call(*args, **kwargs)
        return messages

    # Subscription and assignment

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """As ``confluent_kafka.Consumer.subscribe``. The callbacks see the partitions that are really held.

        Under an eager protocol a change of modes within a generation is shown to them as a rebalance: ``on_revoke``
        with all held partitions, then ``on_assign`` with all that are held afterwards.
        """
        _check_subscription(topics, on_assign, on_revoke, on_lost)
        self._rebalance.subscription = Subscription(tuple(topics), on_assign, on_revoke, on_lost)
        if self._views.ready:
            self._pending = None
            self._rebalance.join()
        else:
            self._stock.memberid()  # raises if the consumer is closed
            self._pending = self._rebalance.subscription
            self._waiting_since_s = self._look_again_s = time.monotonic()
            self._attention.call()

    def unsubscribe(self) -> None:
        """As ``confluent_kafka.Consumer.unsubscribe``."""
        self._pending = None
        super().unsubscribe()
        self._rebalance.leave()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """As ``confluent_kafka.Consumer.assign``; partitions of mode None wait until they are readable again."""
        self._rebalance.assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """As ``confluent_kafka.Consumer.incremental_assign``; partitions of mode None wait until they are readable."""
        self._rebalance.incremental_assign(partitions)

    def unassign(self) -> None:
        """As ``confluent_kafka.Consumer.unassign``."""
        self._rebalance.unassign()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """As ``confluent_kafka.Consumer.incremental_unassign``."""
        self._rebalance.incremental_unassign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """As ``confluent_kafka.Consumer.assignment``: the partitions that are read, none of mode None."""
        return self._holding.visible(super().assignment())

    def pause(self, partitions: list[TopicPartition]) -> None:
        """As ``confluent_kafka.Consumer.pause``."""
        self._holding.pause(partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """As ``confluent_kafka.Consumer.resume``; partitions of mode None go on when they are readable again."""
        self._holding.resume(partitions)

    def seek(self, partition: TopicPartition) -> None:
        """As ``confluent_kafka.Consumer.seek``."""
        self._holding.seek(partition)

    # Life

    def close(self) -> None:
        """As ``confluent_kafka.Consumer.close``; the share of the views is given back first."""
        if not self._attention.stopped:
            self._pending = None
            self._rebalance.before_close()
            self._share.release()
            self._attention.stop()
            self._describer.close()
        super().close()

    def __exit__(self, *exception: Any) -> Any:
        self.close()

    def modeaware_stats(self) -> dict[str, Any]:
        """Figures that cost nothing per record.

        Returns:
            ``state`` (``waiting`` for the first view, ``direct`` = librdkafka's own ``poll``, ``acting`` = something
            is to be done at the next one), ``assigned`` (partitions held), ``hidden`` (given to this consumer and not
            held, being in mode None), ``in_doubt`` (topics of which nothing is held until the group can be
            described), ``rejoins`` (rebalances asked for), and ``views``: what the shared source reports
            (``view_age_ms``, ``stale``, ...).
        """
        held, mine = set(self._holding.held), self._holding.mine
        state = "direct" if self._attention.direct else "acting"
        return {
            "state": "waiting" if self._pending is not None else state,
            "assigned": len(held),
            "hidden": len(mine) - len(held),
            "in_doubt": sorted(self._dealing.undealt),
            "rejoins": self._dealing.rejoins,
            "views": self._views.stats(),
        }

    # Work of the polling thread

    def _note(self, changed: Mapping[str, TopicView]) -> None:
        """Leave a note for the polling thread (called by the source's thread)."""
        concerned = False
        for topic, view in changed.items():
            if self._concerns(topic):
                self._dealing.note(view)
                self._offsets.remember(view)
                concerned = True
        if concerned or self._pending is not None:
            self._dealing.modes_changed()
            self._attention.call()

    def _concerns(self, topic: str) -> bool:
        subscription = self._rebalance.subscription
        if subscription is not None and subscription.covers(topic):
            return True
        return self._holding.manual and any(key[0] == topic for key in tuple(self._holding.mine))

    def _act(self) -> None:
        if self._pending is not None:
            self._join_when_known()
        else:
            self._rebalance.apply(self)

    def _join_when_known(self) -> None:
        self._look_again_s = time.monotonic() + _VIEW_POLL_S
        waited_s = time.monotonic() - self._waiting_since_s
        if not self._views.ready and waited_s < self._config.view_timeout_ms / 1000:
            return
        if not self._views.ready and self._config.on_unknown != "writable":
            if self._config.on_unknown == "error":
                raise FirstViewTimeout(
                    f"no view of the partition modes within {self._config.view_timeout_ms} ms "
                    f"(modeaware.view.timeout.ms), nothing is read: {self._views.error() or 'the source is silent'}"
                )
            return
        self._pending = None
        self._rebalance.join()

    def _due_s(self) -> float | None:
        if self._pending is not None:
            return self._look_again_s
        return self._rebalance.due_s()


class _Listener:
    """Hands views to a consumer without keeping it alive."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = weakref.ref(consumer)

    def __call__(self, changed: Mapping[str, TopicView]) -> None:
        consumer = self._consumer()
        if consumer is not None:
            consumer._note(changed)


def _check_subscription(topics: Any, *callbacks: Any) -> None:
    """What confluent_kafka refuses at once, also where the subscription itself has to wait."""
    if not isinstance(topics, list):
        raise TypeError("expected list of topic unicode strings")
    if not all(isinstance(topic, str) for topic in topics):
        raise TypeError("expected list of unicode strings")
    for callback in callbacks:
        if callback is not None and not callable(callback):
            raise TypeError("on_assign, on_revoke and on_lost expect a callable")
