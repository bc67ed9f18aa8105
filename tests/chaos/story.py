"""A run from the first broker to the last journal: work, harm, revival, drain, evidence."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from confluent_kafka import KafkaException

from modeaware.errors import ModeAwareError
from modeaware.local import LocalKafka
from tests.chaos.chains import Replacer
from tests.chaos.fleet import Child, Fleet
from tests.chaos.membership import MissedAssignment, last_received, missed_assignments
from tests.chaos.nemesis import BrokerLane, ProcessLane
from tests.chaos.operators import Operator, Remaker
from tests.chaos.plain import commit_zeros, create_topic, unread, write_contents
from tests.chaos.setting import CHAINS, GROUPS, PARTITIONS, Setting
from tests.chaos.tasks import until
from tests.chaos.watch import Watch
from tests.support.kafka_tools import finish_tool

START_S = 90.0
END_S = 120.0
DRAIN_S = 180.0
LOOKS, LOOK_S = 2, 10.0
TOOL_MS = 45_000
SWITCHED_S = 15.0
LONGER_S = 180.0
"""Harm goes on for up to so much longer until the first switch is :data:`SWITCHED_S` old: before it there is little to
judge, and how soon a shrink gets through depends on the machine and the nemesis."""


@dataclass(frozen=True)
class Story:
    """One run, told once: :meth:`tell`.

    Attributes:
        kafka: three running nodes of its own.
        gap_s: how long each lane of the nemesis rests (from, to).
    """

    setting: Setting
    kafka: LocalKafka
    fleet: Fleet
    gap_s: tuple[float, float]

    def tell(self) -> None:
        """Run it all; no process of it but the brokers is left when this returns.

        Raises:
            ModeAwareError, KafkaException, TimeoutError: it could not be brought to its end.
        """
        with ExitStack() as closing:
            closing.callback(self.fleet.stop)
            self._set_up()
            watch = Watch(self.setting, self.fleet.chronicle)
            closing.callback(watch.stop)
            watch.start()
            operator = Operator(self.setting, self.fleet, watch)
            self._harm(operator, watch)
            self._settle(operator)
        self._phase("end")

    def _set_up(self) -> None:
        self._phase("set up")
        create_topic(self.setting, self.setting.topic, PARTITIONS)
        for group in GROUPS:
            if group.conf.get("auto.offset.reset") == "latest":
                commit_zeros(self.setting, group.name)
        # Groups first: while processes start, heartbeats time out, and a coordinator may give what one member still
        # holds to another (librdkafka and KIP-848). Where nothing is written yet, nothing is read twice for that.
        self.fleet.start_all("controller")
        for role in ("reader", "writer"):
            self.fleet.start_all(role)
            if not until(partial(self._at_work, role), START_S):
                words = {child.name: child.last_words() for child in self.fleet.children}
                raise ModeAwareError(f"not every {role} is at work after {START_S:.0f} s; last words: {words}")
        self.fleet.start()

    def _at_work(self, role: str) -> bool:
        """Whether every process of a role has something in its journal."""
        patterns = [f"*.{child.name}.*.journal" for child in self.fleet.of(role)]
        return all(any(path.stat().st_size for path in self.setting.folder.glob(each)) for each in patterns)

    def _harm(self, operator: Operator, watch: Watch) -> None:
        self._phase("harm")
        seed, gap_s = self.setting.seed, self.gap_s
        lanes = [
            BrokerLane(self.kafka, self.fleet.chronicle, seed, gap_s),
            ProcessLane(self.fleet, lambda: self._active(watch), seed, gap_s),
        ]

        def failed() -> bool:
            return any(lane.failed for lane in lanes)

        operator.start()
        with ExitStack() as reviving:
            # Stopped last: once nothing is harmed any more the groups of the chains read to the end.
            replacers = [Replacer(self.setting, watch, name, group) for name, group in CHAINS.items()]
            for task in replacers:
                reviving.callback(task.stop)
                task.start()
            for task in replacers:
                reviving.callback(task.done.set)  # all of them, before the first one is waited for
            for task in (Remaker(self.setting, watch, gap_s), *lanes):
                reviving.callback(task.stop)
                task.start()
            reviving.callback(self._phase, "revive")
            until(failed, self.setting.minutes * 60)
            until(lambda: failed() or operator.in_force_s() >= SWITCHED_S, LONGER_S)

    def _settle(self, operator: Operator) -> None:
        """Every process comes to its end in good order, and every group reads to the end before."""
        self._phase("settle")
        killed = self.fleet.end("writer", END_S)
        operator.stop()
        self._phase("drain")
        for group in GROUPS:
            self._drain(group.name)
        killed += self.fleet.end("reader", END_S) + self.fleet.end("controller", END_S)
        self.fleet.chronicle.note("settled", killed=killed)
        self.fleet.chronicle.note("contents", records=write_contents(self.setting))

    def _drain(self, group: str) -> None:
        """Wait until a group has committed all there is; if it does not, the judge will say so."""
        left: dict[int, int] = {}

        def drained() -> bool:
            try:
                left.clear()
                left.update(unread(self.setting, group))
            except (KafkaException, TimeoutError) as error:
                self.fleet.chronicle.note("drain-failed", group=group, error=str(error))
                return False
            return not left

        done = until(drained, DRAIN_S, 1.0)
        if not done and self._restart_stale(group):
            done = until(drained, DRAIN_S, 1.0)
        self.fleet.chronicle.note("drained" if done else "not-drained", group=group, left=dict(left))

    def _restart_stale(self, group: str) -> bool:
        """Restart the members whose client missed its assignment (:mod:`tests.chaos.membership`).

        The group still has to read every record afterwards.

        Returns:
            Whether any member was restarted.
        """
        readers = {f"{child.name}-{child.run}": child for child in self.fleet.of("reader") if child.group == group}
        looks: list[list[MissedAssignment]] = []
        for _ in range(LOOKS):
            time.sleep(LOOK_S if looks else 0.0)  # an assignment in flight has arrived at the second look
            description = self._describe_members(group)
            received = {client_id: last_received(child.log_lines()) for client_id, child in readers.items()}
            looks.append(missed_assignments(description, received))
        stale = [each for each in looks[0] if all(each in look for look in looks)]
        for each in stale:
            self.fleet.chronicle.note("assignment-missed", group=group, **each._asdict())
            child = readers[each.client_id]
            with child.turn:
                child.terminate()
                if not child.wait(END_S):
                    child.kill()
                self.fleet.start_child(child)
        return bool(stale)

    def _describe_members(self, group: str) -> str:
        """Note and return the coordinator's description of a group's members; empty if the tool does not end."""
        tool = f"kafka-consumer-groups.sh --bootstrap-server {self.setting.bootstrap_servers} --timeout {TOOL_MS}"
        try:
            members = finish_tool(f"{tool} --describe --group {self.setting.topic}-{group} --members --verbose").out
        except subprocess.TimeoutExpired:
            members = ""
        self.fleet.chronicle.note("members", group=group, members=members)
        return members

    def _active(self, watch: Watch) -> Child | None:
        holder = watch.controller_id
        for child in self.fleet.of("controller"):
            if holder is not None and child.pid is not None and f"-{child.pid}-" in f"-{holder}-":
                return child
        return None

    def _phase(self, name: str) -> None:
        self.fleet.chronicle.note("phase", phase=name)
