"""The job that evacuates a compacted topic: it looks, copies, and commits at last. It may die in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeaware.lifecycle.evacuation import evacuation_of
from modeaware.modes import PartitionMode

if TYPE_CHECKING:
    from tests.simulation.world import World


@dataclass(frozen=True)
class Run:
    """A job under way: what it has copied, for which placement of keys, and what it is going to commit."""

    topic_id: str
    placement: int
    group: str
    seals: dict[int, tuple[int, int]]
    copied: frozenset[int]


class Evacuator:
    """Whoever runs that job, by the modes in force when it starts.

    Attributes:
        placement: how often keys have got other partitions.
        committed: group -> partition -> (offset, leader epoch), as the coordinator keeps it.
        runs: the jobs that have copied and not committed.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.placement = 0
        self.committed: dict[str, dict[int, tuple[int, int]]] = {}
        self.runs: list[Run] = []
        self._copied: dict[tuple[str, int], set[int]] = {}

    def copied(self, topic_id: str) -> set[int]:
        """The records that were copied to where keys belong now, by jobs that have said so."""
        return self._copied.get((topic_id, self.placement), set())

    def start(self) -> None:
        """Copy what lies below the seals of partitions that are sealed now."""
        world, record = self._world, self._world.record
        group = evacuation_of(record)
        if record is None or group is None or world.topic is None:
            return
        seals, copied = {}, set()
        for partition, retired in record.retired.items():
            if record.modes[partition] is not PartitionMode.READ_ONLY or partition >= len(world.topic.logs):
                continue
            log = world.topic.logs[partition]
            if retired.seal_offset is not None and log.available and retired.seal_offset <= log.end:
                seals[partition] = (retired.seal_offset, log.epoch)
                copied.update(log.records[log.log_start : retired.seal_offset])
        if seals:
            world.tell("a job of group %s has copied %s", group, seals)
            self.runs.append(Run(record.topic_id, self.placement, group, seals, frozenset(copied)))

    def finish(self, index: int, most: int) -> None:
        """One of the jobs commits ``most`` of its partitions at most, and ends."""
        run = self.runs.pop(index)
        topic = self._world.topic
        if topic is None or topic.topic_id != run.topic_id:
            return  # it fails: the topic is not the one it began with
        self._copied.setdefault((run.topic_id, run.placement), set()).update(run.copied)
        chosen = dict(list(run.seals.items())[:most])
        self._world.tell("the job of group %s commits %s", run.group, chosen)
        self.committed.setdefault(run.group, {}).update(chosen)

    def run_now(self) -> None:
        """A job from its beginning to its end."""
        self.start()
        if self.runs:
            self.finish(len(self.runs) - 1, 1 << 30)

    def expire(self, group: str) -> None:
        """Its offsets are dropped."""
        self._world.tell("the offsets of group %s expire", group)
        self.committed.pop(group, None)

    def forget(self) -> None:
        """The topic is gone, and the offsets with it."""
        self.committed.clear()
        self.runs.clear()
