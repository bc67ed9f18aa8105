"""Consumer groups: aware or stock, earliest or latest, with offsets that expire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeaware.clients.assignment import hidden, owned, possible_hidden, range_deal, share
from modeaware.modes import PartitionMode
from tests.simulation.broker import Log, Topic
from tests.simulation.modelog import Reader

if TYPE_CHECKING:
    from tests.simulation.world import World


@dataclass(eq=False)
class Group:
    """One group; all its members act in one step, each with a view of its own.

    Attributes:
        aware: its members honour modes and make every start offset explicit; a stock one reads all partitions.
        latest: where it starts without a commit; else at the log start.
        epochless: nobody sees the leader epochs of its commits.
        began: partition -> the step of its first commit there.
        committed: partition -> (offset, leader epoch of the last record read), as the coordinator keeps it.
        consumed: the records it has got (and committed); those it need not get are counted in.
        resume: resume offsets that its members were told of, with the topic's id.
        held: partitions that a member held since ``joined_at``, the step at which its members came up.
        reset_at: the step at which its offsets were last set back.
    """

    world: World
    name: str
    aware: bool
    latest: bool
    kind: str
    commits: bool
    epochless: bool
    readers: list[Reader]
    stateful: bool = False
    has_members: bool = False
    committed: dict[int, tuple[int, int]] = field(default_factory=dict)
    began: dict[int, int] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    position_epochs: dict[int, int] = field(default_factory=dict)
    owners: dict[int, Reader] = field(default_factory=dict)
    consumed: set[int] = field(default_factory=set)
    resume: dict[int, tuple[str | None, int]] = field(default_factory=dict)
    joined_at: int = 0
    held: set[int] = field(default_factory=set)
    reset_at: int = -1

    waived: bool = False
    ever = True

    def uses(self, _topic: Topic) -> bool:
        return self.in_use

    @property
    def in_use(self) -> bool:
        return self.has_members or bool(self.committed)

    def goes_on_at(self, partition: int, default: int) -> int:
        """Where it would go on: at its commit, else where a member is, else at ``default``."""
        commit = self.committed.get(partition)
        return self.positions.get(partition, default) if commit is None else commit[0]

    def join(self) -> None:
        if not self.has_members:
            self.has_members = True
            self.joined_at = self.world.steps
            self.resume.clear()
            self.held.clear()
        self.rebalance()

    def leave(self) -> None:
        self._commit_before_leaving()
        self.has_members = False
        self.positions.clear()
        self.owners.clear()

    def _commit_before_leaving(self) -> None:
        """Aware members of a latest group commit where idle partitions start, for topics that have modes."""
        for partition, reader in self.owners.items():
            if reader.view.topic_id is None:
                self.held.discard(partition)  # without modes it is a stock consumer, who begins at the end anew
            elif self.latest and self.commits and partition in self.positions:
                self._commit_start(partition)

    def forget(self, _topic_id: str) -> None:
        self.committed.clear()
        self.positions.clear()
        self.owners.clear()
        self.resume.clear()
        self.held.clear()

    def rebalance(self) -> None:
        """Deal the partitions: by what each member knew before, and knows after, as modeaware.Consumer does it."""
        topic = self.world.topic
        self._commit_before_leaving()
        self.positions.clear()
        self.owners.clear()
        if topic is None or not self.has_members:
            return
        if len(self.readers) > 1:
            self._deal(len(topic.logs))
        elif self.readers:
            self.readers[0].catch_up()
            self.readers[0].verify()
            self.owners = dict.fromkeys(range(len(topic.logs)), self.readers[0])
        self.assign()

    def _deal(self, count: int) -> None:
        names = [str(i) for i in range(len(self.readers))]
        given = range_deal(names, range(count))
        # A consumer subscribes once it has a first view: one that has read nothing yet takes nothing.
        known = [reader.view if reader.position or not self.world.log.next_offset else None for reader in self.readers]
        # What was compacted away had been replaced by then: a reading to the log's end tells of that.
        joined = max(self.world.log.compacted_end, *(reader.position for reader in self.readers))
        random = self.world.random
        taken: set[int] = set()
        for name, reader, before in zip(names, self.readers, known, strict=True):
            first = len(reader.seen)
            while reader.position < joined or (reader.behind and random() < 0.8):
                reader.catch_up(1)
            reader.verify()
            sets = possible_hidden(before, reader.seen[first:], reader.view)
            mine = share(given, name, sets)
            self.world.judge.dealt(self, taken, mine)
            taken |= mine
            self.owners.update(dict.fromkeys(sorted(mine), reader))
            if self.world.calm:
                assert mine <= owned(given, hidden(reader.view))[name]

    def assign(self) -> None:
        """Take up what became readable, release what is hidden now."""
        topic = self.world.topic
        if topic is None:
            return
        for reader in self.readers:
            for view in reader.seen:
                for partition, offset in view.resume_offsets.items():
                    told = self.resume.get(partition)
                    # One that it has still to come back to stays where it was told first.
                    if told is None or told[0] != view.topic_id or partition in self.positions:
                        self.resume[partition] = (view.topic_id, offset)
            reader.seen.clear()
        if not self.aware:
            for partition in range(len(topic.logs)):
                if partition not in self.positions and topic.logs[partition].available:
                    self._start(partition, topic.logs[partition])
            return
        for partition, reader in self.owners.items():
            readable = reader.view.is_readable(partition)
            if not readable:
                self.positions.pop(partition, None)
                if reader.view.topic_id != topic.topic_id:
                    self.held.discard(partition)  # hidden by the modes of an earlier topic of that name
            elif partition not in self.positions and partition < len(topic.logs):
                if not topic.logs[partition].available:
                    continue
                self._start(partition, topic.logs[partition])
            if readable and reader.view.mode(partition) is PartitionMode.READ_ONLY and partition in self.positions:
                self._commit_start(partition)

    def _start(self, partition: int, log: Log) -> None:
        """Where reading begins: the committed offset, else the resume offset, else as ``latest`` says."""
        view = self.owners[partition].view if self.aware else None
        resume = None
        if view is not None:
            told = self.resume.get(partition)
            resume = min(told[1], log.end) if told is not None and told[0] == view.topic_id else None
        commit = self.committed.get(partition)
        if commit is not None:
            position = commit[0]
        elif self.latest and resume is not None:
            position = resume
            # The offset tells nothing of a log that was truncated since, and grew again.
            begins = partition not in self.held or log.truncated_at >= 0
            self._need_not(log.records[log.log_start : position], all_of_them=begins)
        elif self.latest:
            position = log.end
            topic = self.world.topic
            # Without modes, or with those of an earlier topic of that name, it is a stock consumer.
            stock = view is None or topic is None or view.topic_id != topic.topic_id
            begins = stock or partition not in self.held
            self._need_not(log.records[log.log_start : position], all_of_them=begins)
        else:
            position = log.log_start
        if view is not None and view.topic_id is not None:
            position = max(position, log.log_start)  # auto.offset.reset decides nothing in mid-life
        self.positions[partition] = position
        self.resume.pop(partition, None)
        self.position_epochs[partition] = log.epoch if commit is None else commit[1]
        self.held.add(partition)
        if commit is None or commit[0] != position:
            self.world.tell("group %s takes up partition %d at %d", self.name, partition, position)
        if self.kind == "share":
            self._commit_start(partition)

    def _need_not(self, records: list[int], *, all_of_them: bool) -> None:
        """Records that lay there before its members came up are none of a latest group's business."""
        sent, joined = self.world.sent, self.joined_at
        self.consumed.update(r for r in records if r >= 0 and (all_of_them or sent[r].landed_at <= joined))

    def _commit_start(self, partition: int) -> None:
        if self.commits and partition not in self.committed and self.world.log_of(partition) is not None:
            self.began[partition] = self.world.steps
            self.committed[partition] = (self.positions[partition], self.position_epochs[partition])

    def read(self, partition: int, count: int) -> None:
        """Read up to ``count`` records of one partition, and commit behind the last of them."""
        log, position = self.world.log_of(partition), self.positions.get(partition)
        if log is None or position is None or not log.available:
            return
        position = self._validated(partition, position, log)
        records, is_data, stable = log.records, self.world.is_data, log.stable
        behind_last = None
        while position < stable and count:
            record = records[position]
            position += 1
            if is_data(record):
                self.consumed.add(record)
                behind_last = position
                count -= 1
        self.positions[partition] = position
        self.position_epochs[partition] = log.epoch
        if behind_last is not None and self.commits:
            self.world.tell("group %s reads partition %d and commits %d", self.name, partition, behind_last)
            if partition not in self.committed:
                self.began[partition] = self.world.steps
            self.committed[partition] = (behind_last, log.epoch)

    def _validated(self, partition: int, position: int, log: Log) -> int:
        """Where the log was truncated below the position, it goes back (KIP-320); where the position lies outside of
        the log, ``auto.offset.reset`` decides."""
        position = min(position, max(log.epoch_end(self.position_epochs[partition]), log.log_start))
        if position < log.log_start:
            if self.latest:
                expired = log.log_start <= log.retained_from  # the topic's own retention went past it
                self._need_not(log.records[log.log_start :], all_of_them=expired)
                return log.end
            return log.log_start
        return position

    def poll(self, count: int, behind: bool) -> None:
        """Members take in what they learn of the modes (``behind``: not all of it), and read a bit of everything."""
        for reader in self.readers:
            reader.catch_up(1) if behind else reader.catch_up()
        self.assign()
        for partition in list(self.positions):
            self.read(partition, count)

    def reset(self, partition: int) -> None:
        """It wants to read again what is there now."""
        log = self.world.log_of(partition)
        if log is None or partition not in self.committed:
            return
        self.committed[partition] = (log.log_start, log.epoch)
        self.positions.pop(partition, None)
        self.consumed.difference_update(log.records[log.log_start :])
        self.reset_at = self.world.steps

    # At the end of a schedule

    def calm_down(self) -> None:
        if self.in_use:
            self.join()

    def begin_at_last(self) -> None:
        """One that is not in use stays away."""

    def read_all(self) -> None:
        if self.has_members:
            self.rebalance()
            self.poll(10_000, behind=False)

    @property
    def sits_at_the_end(self) -> bool:
        """Retention went past a latest group's commit: it waits at the end, and commits nothing before one comes."""
        topic = self.world.topic
        assert topic is not None
        return self.latest and any(
            offset < topic.logs[p].log_start and self.positions.get(p) == topic.logs[p].end
            for p, (offset, _) in self.committed.items()
        )

    def set_back_to_what_it_read(self) -> None:
        """``kafka-consumer-groups --reset-offsets``: to where the log still is what the group has read."""
        topic = self.world.topic
        assert topic is not None
        for partition, (offset, epoch) in list(self.committed.items()):
            log = topic.logs[partition]
            if offset < log.log_start and self.positions.get(partition) == log.end:
                self.committed[partition] = (log.end, log.epoch)
            else:
                self.committed[partition] = (max(min(offset, log.epoch_end(epoch)), log.log_start), log.epoch)
                self.positions.pop(partition, None)
