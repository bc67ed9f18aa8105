"""The operator: shrinks the topic again and again, takes some of it back in the middle, and grows it again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import modeaware
from modeaware.errors import ModeAwareError, RequestRefused
from modeaware.librdkafka import KafkaException
from modeaware.librdkafka_admin import NewPartitions
from modeaware.topic_view import TopicView
from tests.chaos.chronicle import Chronicle
from tests.chaos.evidence import below_seals, ends
from tests.chaos.mode_records import ModeRecords
from tests.chaos.setting import LOWEST_TARGET, PARTITIONS, SHRINK_DELAYS_MS, Setting
from tests.chaos.sleepers import Sleepers

UNDONE_SHARE = 0.2
AGAIN_SHARE = 0.3
UNDO_AFTER_S = (0.0, 9.0)
SHRINK_S = 90.0
REQUEST_S = 20.0
INSIST_S = 120.0
POLL_S = 0.1
EVIDENCE_S = 45.0
RECORD_S = 10.0


class Operator:
    """Works in a thread of its own between :meth:`start` and :meth:`stop`.

    Args:
        view: the topic's view now.
        records: the topic's records in the mode log.
        sleepers: who sleeps through a switch.

    Attributes:
        switched_s: when the first switch was seen (monotonic), None before.
    """

    def __init__(
        self,
        setting: Setting,
        chronicle: Chronicle,
        view: Callable[[], TopicView],
        records: ModeRecords,
        sleepers: Sleepers,
    ) -> None:
        self._setting = setting
        self._topic = setting.topic
        self._records = records
        self._sleepers = sleepers
        self._chronicle = chronicle
        self._view = view
        self._chance = random.Random(f"{setting.seed}-operator")
        self._admin = modeaware.AdminClient(setting.conf)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-operator", daemon=True)
        self._failure: BaseException | None = None
        self.switched_s: float | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the shrink under way come to its end.

        Raises:
            ModeAwareError, KafkaException: why the operator had stopped before.
        """
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._admin.close()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._once()
        except Exception as error:  # noqa: BLE001 - raised again in stop(), in the thread that waits for it
            self._chronicle.note("operator-failed", error=repr(error))
            self._failure = error

    def _once(self) -> None:
        writable = len(self._view().writable) or PARTITIONS
        target = self._chance.randint(LOWEST_TARGET, max(writable - 1, LOWEST_TARGET))
        delay_ms = self._chance.choice(SHRINK_DELAYS_MS)
        began_s = time.monotonic()
        with self._sleepers.asleep() as sleep:
            asked_ms = self._setting.now_ms()
            self._ask(
                "shrink",
                target,
                lambda: self._shrink(target, delay_ms),
                lambda view: 0 < len(view.writable) <= target,
            )
            self.switched_s = self.switched_s or time.monotonic()
            self._chronicle.note("switched", to=target, delay_ms=delay_ms, asked_ms=asked_ms)
            self._note_ends(before_growth=False)
            sleep.through(delay_ms)
        if self._chance.random() < UNDONE_SHARE:
            self._stopping.wait(self._chance.uniform(*UNDO_AFTER_S))
            done = self._reclaimed() is not None
            self._grow()
            self._chronicle.note("grown" if done else "undone", target=target)
            return
        if self._until(lambda: self._reclaimed() is not None, SHRINK_S):
            took_s = round(time.monotonic() - began_s, 1)
            self._chronicle.note("shrunk", to=target, delay_ms=delay_ms, took_s=took_s, **self._evidence())
            self._stopping.wait(self._chance.uniform(0.5, 3.0))
            if target > LOWEST_TARGET and self._chance.random() < AGAIN_SHARE:
                return  # and shrink it further
        else:
            self._chronicle.note("not-shrunk", to=target, delay_ms=delay_ms, after_s=SHRINK_S)
        self._grow()

    def _shrink(self, target: int, delay_ms: int) -> None:
        futures = self._admin.delete_partitions(
            {self._topic: modeaware.DeletePartitions(target)}, delay_ms, request_timeout=REQUEST_S
        )
        futures[self._topic].result(REQUEST_S + 5)

    def _evidence(self) -> dict[str, dict[int, int]]:
        """What Kafka and the mode log say to a shrink that the view calls complete; what they do not say is missing."""
        found: dict[str, dict[int, int]] = {}

        def ask() -> bool:
            view = self._reclaimed()
            sealed = self._records.sealed(view.version, RECORD_S) if view is not None else None
            if sealed is None:
                return False  # a straggler has broken a seal: it is drained, and reclaimed, again
            try:
                starts, left = below_seals(self._setting, sealed.seals)
            except (KafkaException, TimeoutError) as error:
                self._chronicle.note("evidence-failed", error=str(error))
                return False
            found.update(seals=dict(sealed.seals), reclaims=dict(sealed.reclaims), log_starts=starts, left=left)
            return True

        self._until(ask, EVIDENCE_S)
        return found

    def _note_ends(self, *, before_growth: bool) -> None:
        """Where retired partitions end: what lands behind that, and before the next growth, lands while they are."""
        retired = set(range(PARTITIONS)) - set(self._view().writable)
        try:
            found = {p: end for p, end in ends(self._setting).items() if p in retired}
        except KafkaException as error:
            self._chronicle.note("evidence-failed", error=str(error))
            found = {}  # then nothing is known to have landed
        self._chronicle.note("ends-of-retired", before_growth=before_growth, ends=found)

    def _grow(self) -> None:
        self._note_ends(before_growth=True)

        def ask() -> None:
            futures = self._admin.create_partitions([NewPartitions(self._topic, PARTITIONS)], request_timeout=REQUEST_S)
            futures[self._topic].result(REQUEST_S + 5)

        self._ask("grow", PARTITIONS, ask, lambda view: view.all_writable)

    def _ask(self, what: str, to: int, ask: Callable[[], None], done: Callable[[TopicView], bool]) -> None:
        """Ask until it is so.

        Raises:
            ModeAwareError: it is not so after :data:`INSIST_S` seconds.
        """
        deadline_s = time.monotonic() + INSIST_S
        while True:
            try:
                ask()
                self._chronicle.note("command", what=what, to=to, answer="done")
            except (ModeAwareError, KafkaException, TimeoutError) as error:
                # Whether it was done all the same the view will tell; a refusal for what is under way goes away.
                refused = isinstance(error, RequestRefused)
                self._chronicle.note("command", what=what, to=to, answer=str(error), refused=refused)
            if self._until(lambda: done(self._view()), 5.0):
                return
            if time.monotonic() > deadline_s:
                raise ModeAwareError(f"could not {what} {self._topic} to {to} within {INSIST_S:.0f} s")

    def _reclaimed(self) -> TopicView | None:
        """The view, if it calls every retired partition reclaimed."""
        view = self._view()
        return view if view.reclaimed >= set(range(len(view.writable), len(view.modes))) else None

    def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(POLL_S)  # the view is looked at, nobody wakes us
        return True
