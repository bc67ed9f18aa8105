"""The simulated mode log: one compacted partition, transactions that fence, and readers at any distance behind it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from modeaware.chain import old_topics
from modeaware.errors import ClusterError, ControllerFenced, ErrorCode, ModeSourceError
from modeaware.modelog.group_rules import GROUP_RULES_KEY
from modeaware.modelog.records import CLAIM_KEY, TopicRecord
from modeaware.modelog.replay import Replay
from modeaware.topic_view import TopicView
from tests.simulation.faults import Fault

if TYPE_CHECKING:
    from tests.simulation.controller import Controller
    from tests.simulation.observer import Looked
    from tests.simulation.world import World

Entry = tuple[str | bytes, bytes | None]
FOR_NEWER_READERS = b'{"min_reader":99,"version":99}'
RUBBISH = (b"\xff\xfe", b"tmp", b"{", b"[]", b'{"version":1}', b'{"topic":"orders","epoch":"x"}')

UNREADABLE = frozenset((*RUBBISH, FOR_NEWER_READERS))


class SharedLog:
    """The log as the brokers hold it, and what it says (``truth``, folded as it grows).

    Attributes:
        offsets, entries: what lies in it; compaction leaves gaps.
        epoch: the producer epoch of the transactional id: whoever opened last.
        pending: a transaction whose outcome its writer was never told.
        spoilt: keys in use whose latest record no reader takes -> (whether it is for newer readers, the controller
            epoch at which it came).
        left_alone: the keys which were for newer readers when the controller that made the last claim read the log.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.offsets: list[int] = []
        self.entries: list[Entry] = []
        self.next_offset = 0
        self.compacted_end = 0  # where the log ended when it was last compacted
        self.epoch = 0
        self.pending: tuple[list[Entry], Controller, Looked] | None = None
        self.spoilt: dict[str, tuple[bool, int]] = {}
        self.left_alone: frozenset[str] = frozenset()
        self.truth = Replay()
        self._views: dict[int, tuple[TopicRecord, TopicView]] = {}

    def view_of(self, record: TopicRecord) -> TopicView:
        found = self._views.get(id(record))
        if found is None:
            found = self._views[id(record)] = (record, record.view())
        return found[1]

    def write(self, records: Sequence[Entry], writer: Controller | None, *, late: bool = False) -> None:
        """Committed records, of a controller or of anybody else (None)."""
        for key, value in records:
            self.offsets.append(self.next_offset)
            self.entries.append((key, value))
            self.next_offset += 1
            if writer is None:
                self.truth.apply(key, value)
                self.world.judge.others_wrote(self.truth)
            else:
                assert isinstance(key, str)
                self.world.judge.appended(self.truth, key, value, writer, late=late)
                if key == CLAIM_KEY:
                    self.left_alone = writer.not_for_it
            self._mark(key, value)

    def _mark(self, key: str | bytes, value: bytes | None) -> None:
        """Keep track of rubbish under keys in use, and of records for newer readers there."""
        if value not in UNREADABLE:
            if self.spoilt:
                self.spoilt.pop(str(key), None)
        elif key in self.keys_in_use:
            self.spoilt[str(key)] = (value == FOR_NEWER_READERS, self.world.judge.epoch)

    @property
    def keys_in_use(self) -> list[str]:
        """Those that a controller has written to."""
        claim = [CLAIM_KEY] if self.truth.claim is not None else []
        rules = [GROUP_RULES_KEY] if self.truth.group_rules is not None else []
        return [*claim, *rules, *self.truth.records]

    def restore(self) -> None:
        """Whoever wrote for newer readers writes for all of them again. A controller that holds the log since before
        that, or read it before it made its claim, knows what was there, and is left to write it itself."""
        truth, judge = self.truth, self.world.judge
        for key, (newer, epoch) in list(self.spoilt.items()):
            if key == CLAIM_KEY:
                assert truth.claim is not None
                self.write([(key, truth.claim.to_json())], None)
            elif newer and epoch != judge.epoch and key in self.left_alone:
                if key == GROUP_RULES_KEY:
                    assert truth.group_rules is not None
                    rules = replace(truth.group_rules, controller_epoch=judge.epoch, epoch=truth.group_rules.epoch + 1)
                    judge.rules_version = rules.version
                    self.write([(key, rules.to_json())], None)
                else:
                    held = truth.records[key]
                    record = replace(held, controller_epoch=judge.epoch, epoch=held.epoch + 1)
                    judge.issued[key, record.version] = record
                    self.write([(key, record.to_json())], None)

    def settle_pending(self, commit: bool) -> None:
        """The transaction coordinator ends what a writer left behind."""
        if self.pending is not None:
            (records, writer, looked), self.pending = self.pending, None
            self.world.tell("the late append of controller %d is %s", writer.index, "done" if commit else "aborted")
            if commit:
                now, writer.looked = writer.looked, looked
                self.write(records, writer, late=True)
                writer.looked = now

    def compact(self, until: int) -> None:
        """Of each key, only the latest record stays; what lies at or after index ``until`` is not touched yet.

        Where rubbish stands under a topic's key, the record before it is kept as well: see the package's docstring.
        """
        self.compacted_end = self.next_offset
        last = {key: index for index, (key, _) in enumerate(self.entries)}
        kept = [i for i, (key, _) in enumerate(self.entries) if i >= until or last[key] == i or self._is_good(i)]
        self.offsets = [self.offsets[i] for i in kept]
        self.entries = [self.entries[i] for i in kept]

    def _is_good(self, index: int) -> bool:
        """Whether it is the last record of a topic before rubbish under its key."""
        key, value = self.entries[index]
        held = self.truth.records.get(str(key)) if self.spoilt and key in self.spoilt else None
        return held is not None and value == held.to_json()

    def duplicate(self, count: int) -> None:
        """The last records come once more, in their order; those behind the last claim, as one writer's retries do.

        Nor does a tombstone come with a later record of its key: no controller writes to a key after one, so the two
        have two writers (``LogActions.stray`` leaves a tombstone where a controller admits the topic's first change).
        """
        last = self.entries[-count:]
        claims = [index for index, (key, _) in enumerate(last) if key == CLAIM_KEY]
        first = claims[-1] if claims else 0
        behind = {key: index for index, (key, _) in enumerate(last)}
        gone = [index for index, (key, value) in enumerate(last) if value is None and behind[key] > index]
        self.write(last[max(first, gone[-1] + 1) if gone else first :], None)

    def fold(self) -> Replay:
        replay = Replay()
        for key, value in self.entries:
            replay.apply(key, value)
        return replay


class Reader:
    """A client's way of learning modes: it applies records in the order of the log, as far as it has got.

    Its view never goes back (invariant I4, checked), and stays what it is while the log is out of reach (I6).
    """

    __slots__ = ("_before", "_views", "aside", "log", "position", "replay", "seen", "topic", "view")

    def __init__(self, log: SharedLog, topic: str) -> None:
        self.log = log
        self.topic = topic
        self.replay = Replay()
        self.position = 0
        self.view = TopicView.unlisted(topic)
        self.seen: list[TopicView] = []
        self._views: dict[str, TopicView] | None = None
        self._before: dict[str, TopicView] | None = None
        self.aside: frozenset[str] = frozenset()  # topic ids that the cluster has shown not to be the topic's

    @property
    def behind(self) -> bool:
        return self.position < self.log.next_offset

    def catch_up(self, count: int = 1 << 30) -> TopicView:
        """Apply up to ``count`` records; the view now."""
        log = self.log
        if self.position >= log.next_offset:
            return self.view
        first = bisect_left(log.offsets, self.position)
        staged = self.position == 0  # the first reading takes effect when it has come to the end
        if staged:
            count = 1 << 30
        for key, value in log.entries[first : first + count]:
            changed = self.replay.apply(key, value)
            self._views = self._before = None
            if self.topic in changed and not staged:
                self._look()
        if staged:
            self._look()
        after = first + count
        self.position = log.offsets[after] if after < len(log.offsets) else log.next_offset
        return self.view

    def view_of(self, topic: str) -> TopicView:
        """The view of any topic, by what was read so far."""
        return self.views().get(topic) or TopicView.unlisted(topic)

    def views(self) -> dict[str, TopicView]:
        """The views of all topics that have a record."""
        if self._views is None:
            records = ((topic, self.replay.record(topic)) for topic in self.replay.topics)
            self._views = {topic: self.log.view_of(record) for topic, record in records if record is not None}
        return self._views

    def before(self) -> dict[str, TopicView]:
        """The views of the topics that others have replaced, by the names of these."""
        if self._before is None:
            self._before = old_topics(self.views())
        return self._before

    def verify(self) -> None:
        """Compare topic ids with the cluster's, as ``Views.verify`` does it (I8). No topic and no answer prove nothing:
        the last view stays."""
        topic = self.log.world.topic
        if topic is not None and self.log.world.tells_ids:
            views = [record.view() for record in self.replay.records_of(self.topic)]
            self.aside = frozenset(v.topic_id for v in views if v.topic_id and not v.applies_to(topic.topic_id))
            self._look()
            self.log.world.judge.verified(self.view)

    def _look(self) -> None:
        records = [r for r in self.replay.records_of(self.topic) if r.topic_id not in self.aside]
        record = records[-1] if records else None
        view = TopicView.unlisted(self.topic) if record is None else self.log.view_of(record)
        if view is not self.view and view != self.view:
            self.log.world.judge.new_view(self, self.view, view)
            self.view = view
            self.seen.append(view)


class LogSession:
    """One controller's hold on the log: the engine's ``ModeLog``. Fenced by a later open, and by the generation."""

    unfit: str | None = None

    def __init__(self, world: World, log: SharedLog, controller: Controller) -> None:
        self._world = world
        self._log = log
        self._controller = controller
        self._epoch: int | None = None

    def open(self) -> Replay:
        world, controller, log = self._world, self._controller, self._log
        world.io(controller, "opens the mode log")
        if world.strikes(Fault.LOG_UNREACHABLE):
            world.tell("controller %d: the mode log is out of reach", controller.index)
            raise ModeSourceError("mode log: no broker")
        log.settle_pending(world.random() < 0.5)
        log.epoch += 1
        self._epoch = log.epoch
        world.io(controller, "reads the mode log")
        replay = log.fold()
        if log.spoilt:
            replay = self._claim_known(replay)
        controller.without_rules = GROUP_RULES_KEY in log.spoilt
        controller.not_for_it = frozenset(key for key, (newer, _) in log.spoilt.items() if newer)
        return replay

    def _claim_known(self, replay: Replay) -> Replay:
        """The log as it was read; but where nothing in it tells the epoch of an unreadable claim any more, somebody
        has written the claim back: see the package's docstring."""
        known = [record.controller_epoch for record in replay.records.values()]
        known += [found.controller_epoch for found in (replay.claim, replay.group_rules) if found is not None]
        if CLAIM_KEY in self._log.spoilt and max(known, default=0) < self._world.judge.epoch:
            self._log.restore()
            return self._log.fold()
        return replay

    def append(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        world, controller, log = self._world, self._controller, self._log
        world.io(controller, "appends")
        if self._epoch is None:
            raise ClusterError("mode log: not open")
        self._check_fences()
        if world.strikes(Fault.APPEND_LOST):
            self._fail("is lost")
        if world.strikes(Fault.APPEND_LATE):
            log.pending = (list(records), controller, controller.looked)
            self._fail("is delayed")
        controller.own_steps = 0
        log.write(records, controller)
        if world.strikes(Fault.APPEND_ANSWER_LOST):
            self._fail("is done, and its answer is lost")
        world.io(controller, "has appended", own=False)

    def _check_fences(self) -> None:
        world, controller = self._world, self._controller
        if self._epoch != self._log.epoch:
            self._epoch = None
            world.hit(Fault.FENCED)
            world.tell("controller %d: its append is fenced", controller.index)
            raise ControllerFenced("mode log: opened by another one")
        if not world.coordinator.accepts(controller.member, controller.member.generation):
            self._epoch = None
            world.hit(Fault.STALE_GENERATION)
            world.tell("controller %d: its append is refused, another one was elected", controller.index)
            raise ControllerFenced("mode log: not the elected one any more")

    def _fail(self, what: str) -> None:
        self._epoch = None
        self._world.tell("controller %d: its append %s", self._controller.index, what)
        raise ClusterError("mode log: no answer", code=ErrorCode.REQUEST_TIMED_OUT)
