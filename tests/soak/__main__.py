"""``python -m tests.soak --hours H``: a topic that is replaced every minute, each old topic deleted, while writers
and groups go on under its first name.

The controller has its default configs, and so have the clients. Figures come every minute, a JSON report at the end.
Exit status 0 only if each group has read every acknowledged record, each key's in their order, and every topic that was
replaced was deleted.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

import modeaware
from modeaware.local import start_kafka
from tests.soak.figures import Figures, as_json
from tests.support.background import Background
from tests.support.plain import create_topic
from tests.support.takeover import ControllerProcess
from tests.support.waiting import eventually
from tests.workload.evidence import Evidence
from tests.workload.judge import judge
from tests.workload.load import Load
from tests.workload.reader import Reader
from tests.workload.verdict import Verdict
from tests.workload.writer import LONG_S

TOPIC, FIRST_COUNT, COUNTS = "soak", 12, (2, 12)
CONFIGS = {"broker.session.timeout.ms": "60000"}
WRITERS, KEYS = 2, 350
"""Keys of each writer, all of which have a record in each of its rounds."""
GROUPS: dict[str, dict[str, Any]] = {"range": {}, "consumer": {"group.protocol": "consumer"}}
MEMBERS = 2
REPLACED_S = 300.0
REQUEST_S = 120.0


class Replacements(Background):
    """Replaces the topic again and again, and waits each time until the brokers have no topic of the old name.

    Args:
        every_s: the time between the beginnings of two replacements, where one is over by then.
        then: called after each.

    Attributes:
        begun, over: how many have begun, and how many of them are over.
    """

    def __init__(self, servers: str, chance: random.Random, every_s: float, then: Callable[[], None]) -> None:
        super().__init__()
        self._servers, self._chance, self._every_s, self._then = servers, chance, every_s, then
        self.begun = self.over = 0
        self._brokers = AdminClient({"bootstrap.servers": servers})

    def work(self) -> None:
        old = TOPIC
        with modeaware.AdminClient({"bootstrap.servers": self._servers}) as admin:
            while not self.done.wait(self._every_s - time.monotonic() % self._every_s):
                self.begun += 1
                new = f"{TOPIC}-v{self.begun + 1}"
                count = self._chance.randint(*COUNTS)
                wanted = modeaware.TopicReplacement(new, num_partitions=count, delete_partitions_delay_ms=0)
                admin.replace_topics({old: wanted}, request_timeout=REQUEST_S)[old].result()
                eventually(partial(self._is_gone, old), REPLACED_S, interval_s=0.5, message=f"{old} is not deleted")
                self.over += 1
                self._then()
                old = new

    def _is_gone(self, topic: str) -> bool:
        return topic not in self._brokers.list_topics(timeout=REQUEST_S).topics


class Member(Reader):
    """A member that closes its consumer while it holds partitions, as most applications do."""

    def close(self, consumer: Any) -> None:
        consumer.close()


class Soak:
    """One run. Its records are judged in parts: those of a period once both topics they lie in were deleted, by when
    every group has to have read them.

    Args:
        per_s: records a second, of all writers together.
        every_s: the time between two replacements, and between two lines of figures.
    """

    def __init__(self, servers: str, folder: Path, per_s: float, every_s: float, seed: int) -> None:
        self._servers, self._every_s = servers, every_s
        self._conf: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 2}
        self._began_s = time.monotonic()
        self._controller = ControllerProcess(self._conf, "__partition_modes", folder)
        self._load = Load(*GROUPS)
        for _ in range(WRITERS):
            self._load.writer(self._producer, TOPIC, keys=KEYS, per_s=per_s / WRITERS, batch=True, catch_up_s=LONG_S)
        for group in GROUPS:
            for _ in range(MEMBERS):
                self._load.reader(partial(self._consumer, group), [TOPIC], group, Member, batch=1_000)
        self._runs: deque[int] = deque([1])
        self._verdict = Verdict()
        self._replacements = Replacements(servers, random.Random(seed), every_s, self._next_period)

    def _producer(self) -> Any:
        settings = {"enable.idempotence": True, "linger.ms": 20, "modeaware.on.resize": "ignore"}
        return modeaware.Producer({**self._conf, **settings})

    def _consumer(self, group: str) -> Any:
        conf = {**self._conf, **GROUPS[group], "group.id": group, "auto.offset.reset": "earliest"}
        return modeaware.Consumer(conf)

    def _next_period(self) -> None:
        """A deletion is over: the next period begins, and the one before that which ends is judged."""
        sinks = [self._load.sink(writer.name) for writer in self._load.writers]
        for writer, (sink, run) in zip(self._load.writers, sinks, strict=True):
            writer.renew(sink, run)
        self._runs.append(sinks[0][1])
        if len(self._runs) > 2:
            self._runs.popleft()
            self._verdict.add(judge(self._load.ledger.split(self._runs[0]), Evidence()))

    def run(self, seconds: float) -> tuple[list[Figures], Figures]:
        """Run for so long; the figures in between, and those at the end."""
        minutes: list[Figures] = []
        with ExitStack() as stack:
            stack.callback(self._controller.kill)
            self._controller.wait_until_it_says("active: epoch")
            create_topic(self._servers, TOPIC, FIRST_COUNT, configs={})
            with self._load.running(), self._replacements:
                end_s = time.monotonic() + seconds
                while (left_s := end_s - time.monotonic()) > 0:
                    time.sleep(min(self._every_s, left_s))  # between two figures
                    self._replacements.fine()
                    self._load.fine()
                    minutes.append(self._figures())
                    print(minutes[-1].line(), flush=True)
                self._replacements.done.set()
                self._replacements.join()  # the replacement under way comes to its end
            self._verdict.add(judge(self._load.ledger, Evidence()))
            return minutes, self._figures()

    def _figures(self) -> Figures:
        return Figures(
            seconds=round(time.monotonic() - self._began_s, 1),
            written=sum(writer.written for writer in self._load.writers),
            refused=dict(sum((writer.failures for writer in self._load.writers), Counter())),
            read=dict(self._load.ledger.distinct),
            errors=dict(sum((reader.errors for reader in self._load.readers), Counter())),
            replacements=self._replacements.begun,
            deletions=self._replacements.over,
            verdict=self._verdict.as_json(),
            rss_mib={"clients": _rss_mib("self"), "controller": _rss_mib(self._controller.pid)},
        )


def _rss_mib(process: int | str) -> int:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    [kib] = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kib) // 1024


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=2.0, metavar="H", help="how long writers write (%(default)s)")
    parser.add_argument("--rate", type=float, default=14_000, metavar="R", help="records a second (%(default)s)")
    parser.add_argument(
        "--every", type=float, default=60.0, metavar="S", help="seconds between two replacements (%(default)s)"
    )
    parser.add_argument("--seed", type=int, metavar="S", help="of the partition counts (default: a new one)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there, too")
    args = parser.parse_args()
    seed = random.randrange(1_000_000) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    with start_kafka(configs=CONFIGS) as kafka, tempfile.TemporaryDirectory() as folder:
        soak = Soak(kafka.bootstrap_servers, Path(folder), args.rate, args.every, seed)
        minutes, end = soak.run(args.hours * 3600)
    print(end.line(), *end.problems(), "NOT WELL" if end.problems() else "all is well", sep="\n", flush=True)
    if args.json is not None:
        report = as_json(minutes, end, seed=seed, hours=args.hours, rate=args.rate)
        args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 1 if end.problems() else 0


if __name__ == "__main__":
    sys.exit(main())
