"""A topic that is replaced, and a load of keyed records that follows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka

import modeaware
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from tests.support.controlled import Controlled
from tests.support.group import settings_of
from tests.support.waiting import eventually
from tests.workload.load import Load
from tests.workload.reader import Reader
from tests.workload.writer import Writer

KEYS, PER_S = 31, 600.0


class Following:
    """A topic that is written, and groups of ours that read it, while it is replaced."""

    def __init__(self, served: Controlled, make_topic: Callable[[int], str], group: str) -> None:
        self.served = served
        self.name = self.topic = make_topic(12)
        self.producer = {**served.conf, "modeaware.mode.log.topic": served.log}
        self.new_topic = f"{self.topic}-v2"
        self.group = group

    def conf(self, strategy: str | None = None, **settings: Any) -> dict[str, Any]:
        """Settings with ``_`` for ``.``."""
        return {
            **self.producer,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            **settings_of(strategy),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def replace(self, to: int = 4, **options: Any) -> None:
        result = self.served.ask(ReplaceTopicCommand(self.topic, self.new_topic, to, **options))
        assert result.code is ErrorCode.NONE, result.message

    def announce(self, load: Load, to: int = 4) -> None:
        """Have the new topic held by the readers, behind its gate; :meth:`replace` then switches at once."""
        self.replace(to, pause_before_switch=True)
        eventually(lambda: load.fine() and sum(each["hidden"] for each in load.stats) == to, 90)

    def replace_at_work(self, load: Load, slow: Reader, work_s: float) -> None:
        """Replace the topic while ``slow`` works on its records for ``work_s``; nothing is lost or out of order."""
        with load.running():
            load.await_held(self.topic, 12)
            load.await_given(self.topic, 300)
            self.announce(load)
            slow.work_s = work_s
            self.replace()
            load.await_given(self.new_topic, 1_000)
            slow.work_s = 0.0
            self.served.wait_done(self.topic)
        load.check()

    def writer(self, load: Load, **settings: Any) -> Writer:
        """An aware, idempotent producer, under the topic's first name whatever that leads to."""
        conf = {**self.producer, "linger.ms": 2, "enable.idempotence": True, **settings}
        return load.writer(lambda: modeaware.Producer(conf), self.name, keys=KEYS, per_s=PER_S)

    def readers(
        self,
        load: Load,
        conf: dict[str, Any],
        *work_s: float,
        group: str = "",
        topics: Sequence[str] = (),
        stock: bool = False,
        **options: Any,
    ) -> list[Reader]:
        """Members of a group, by how long each works on a record; ``stock`` ones know no modes."""
        kind: Any = confluent_kafka.Consumer if stock else modeaware.Consumer
        known = {name: value for name, value in conf.items() if not (stock and name.startswith("modeaware."))}
        options.setdefault("batch", 0)
        names = topics or [self.topic]
        return [load.reader(lambda: kind(known), names, group, work_s=each, **options) for each in work_s]
