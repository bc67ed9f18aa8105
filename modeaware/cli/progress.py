"""The terminal: the display of progress, work that Ctrl-C can interrupt, and the question before a change.

A *check* is one reading of the progress of all topics that are waited for.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from typing import TextIO, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from modeaware.errors import ClusterError, ModeSourceError, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.report import PartitionReport, groups_left, waits_for
from modeaware.modes import format_ranges
from modeaware.printable import number, printable
from modeaware.reports.describe import TopicDescription, alike, describe_changes
from modeaware.reports.session import Session
from modeaware.reports.status import change_phase, half_of
from modeaware.topic_view import TopicView
from modeaware.views import registry

CHECK_INTERVAL_S = 2.0
"""How often the brokers are queried for offsets and lag; a change of modes is shown at once."""
STOP_TIMEOUT_S = 10.0
DETAIL_INTERVAL_S = 10.0
"""How often a line is repeated if only its numbers have changed."""
MOST_GROUPS = 3
"""The most groups with unread records that a line names."""
_TOTAL = "*"
"""Stands for all topics, in place of a topic's name: ``*`` is not a valid name."""
Begin = Callable[["Progress"], Sequence[str]]
"""Called before each check. Begins the changes of further topics, and returns these topics."""
_T = TypeVar("_T")


def tell(*lines: str) -> None:
    """Print lines for people, on standard error, because standard output may be a pipe."""
    for line in lines:
        print(printable(line), file=sys.stderr)


def confirmed(*, yes: bool) -> bool:
    """Request confirmation, unless ``--yes`` was given. Raise RequestRefused if stdin is not a terminal."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise RequestRefused("stdin is not a terminal; pass --yes to proceed. Nothing was changed")
    try:
        return input("Proceed? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def status_without_change(
    *, dry_run: bool, yes: bool, asks: bool = True, say: Callable[[str], None] = print
) -> int | None:
    """Return the exit status if nothing is to be changed: after a dry run, or without consent; otherwise None."""
    if not dry_run and (not asks or confirmed(yes=yes)):
        return None
    say("Dry run: nothing was changed." if dry_run else "Nothing was changed.")
    return 0 if dry_run else 1


def run_interruptibly(work: Callable[[], _T], stop: Callable[[], None] | None = None) -> _T:
    """Return the result of ``work``, or raise its error.

    Python raises a KeyboardInterrupt at any point of the main thread, and the client libraries do not handle the
    exception. kafka-python logs the exception and continues, or keeps a lock; confluent_kafka loses the exception while
    a client is closed. So ``work`` runs in another thread, and the main thread only waits.

    Args:
        stop: makes the work end early. After an interruption, this function calls ``stop``, and waits for the end of
            the work for at most :data:`STOP_TIMEOUT_S`. Without ``stop``, the work only reads, and is abandoned.

    Raises:
        KeyboardInterrupt: without ``stop``, at once; with ``stop``, after the wait for the end of the work.
    """
    future: Future[_T] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
            future.set_exception(error)

    try:  # an interruption may come in start(): the work has begun, or cancel() prevents it
        threading.Thread(target=run, name="modeaware-work", daemon=True).start()
        return future.result()
    except KeyboardInterrupt:
        if not future.cancel() and stop is not None:
            stop()
            wait([future], STOP_TIMEOUT_S)
        raise


class Progress:
    """The display of changes: a line for each step, or on a terminal (``live``) a table that is redrawn in place.

    Attributes:
        total: a line with the progress of all topics, including those that have ended or not begun.
    """

    def __init__(
        self, out: TextIO, live: Live | None = None, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._live = live
        self._monotonic_s = monotonic_s
        self._started_s = monotonic_s()
        self.total = ""
        self._last: dict[str, tuple[str, str, float]] = {}

    def note(self, text: str, topic: str = "", detail: str = "") -> None:
        """Show a line about a topic, or without a topic about all. A line equal to the one before it is not repeated.

        Args:
            detail: the end of the line. If only the detail changes, a line is shown every :data:`DETAIL_INTERVAL_S`.
        """
        now_s = self._monotonic_s()
        before, before_detail, at_s = self._last.get(topic, ("", "", now_s))
        if text == before and (detail == before_detail or now_s - at_s < DETAIL_INTERVAL_S):
            return
        self._last[topic] = (text, detail, now_s)
        text += detail
        if self._live is not None:
            self._live.console.print(printable(text), style="yellow", markup=False, highlight=False)
        else:
            print(f"{time.strftime('%H:%M:%S')} {printable(text)}", file=self._out, flush=True)

    def show(self, *topics: TopicDescription) -> None:
        """Show the progress of ``topics``, with the partitions of the changes in progress (:func:`concerned`)."""
        if "" in self._last:  # after an error, every line is shown again
            self._last.clear()
        if self._live is not None:
            self._live.update(self._table(*topics) if len(topics) == 1 and not self.total else self._overview(topics))
            return
        for topic in topics:
            self._line(topic)
        if self.total:
            self.note(self.total, _TOTAL)

    def _line(self, topic: TopicDescription) -> None:
        steps = [
            f"{group[0].phase} {format_ranges(p.partition for p in group)}"
            + (f" ({waits})" if (waits := waits_for(group)) else "")
            for group in _steps(concerned(topic))
        ]
        if (replacement := topic.replacement) is not None:
            steps = [
                *(steps or [change_phase(topic)]),
                *([replacement.waits_for] if replacement.waits_for is not None else []),
            ]
        left = "".join(f"; {line}" for line in groups_left(topic, MOST_GROUPS))
        text = "; ".join(steps) or "every partition ReadWrite"
        self.note(f"{topic.topic}: {half_of(topic)}{text}", topic.topic, left)

    def _table(self, topic: TopicDescription) -> Group:
        changing = concerned(topic)
        done = sum(p.phase == "done" for p in changing)
        replacement = topic.replacement
        if replacement is None:
            head = f"  {done} of {len(changing)} partitions done"
        else:
            head = f" -> {replacement.new_topic}  {half_of(topic)}{change_phase(topic)}"
        head += self._elapsed()
        rows = _rows("Phase", "Partitions", "Lag", "Waits for")
        for group in _steps(changing):
            lag, first = sum(p.lag or 0 for p in group), group[0]
            ids = format_ranges(p.partition for p in group)
            rows.add_row(first.phase or "", ids, number(lag), printable(waits_for(group) or "-"))
        if replacement is not None:
            rows.add_row(change_phase(topic), "-", "-", printable(replacement.waits_for or "-"))
        left = [Text(printable(line)) for line in groups_left(topic, MOST_GROUPS)]
        bar = ProgressBar(total=max(len(changing), 1), completed=done, width=60)
        return Group(Text.assemble((printable(topic.topic), "bold"), printable(head)), Padding(bar, 0), rows, *left)

    def _overview(self, topics: Sequence[TopicDescription]) -> Group:
        rows = _rows("Topic", "Phase", "Lag", "Waits for")
        for topic in topics:
            changing = concerned(topic)
            waits = [topic.replacing.reason, *(p.reason for p in changing)]
            texts = dict.fromkeys(reasons.brief(reason) for reason in waits if reason is not None)
            lag = number(sum(p.lag or 0 for p in changing))
            rows.add_row(
                printable(topic.topic),
                f"{half_of(topic)}{change_phase(topic)}",
                lag,
                printable("; ".join(texts) or "-"),
            )
        return Group(Text(f"{self.total or f'{len(topics)} under way'}{self._elapsed()}", "bold"), rows)

    def _elapsed(self) -> str:
        elapsed_s = int(self._monotonic_s() - self._started_s)
        return f"  {elapsed_s // 60}:{elapsed_s % 60:02}"


def _rows(*headings: str) -> Table:
    rows = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        rows.add_column(heading, justify="right" if heading == "Lag" else "left", header_style="dim")
    return rows


def concerned(topic: TopicDescription) -> list[PartitionReport]:
    """Return the partitions of the change in progress, without those that an earlier, complete shrink retired."""
    deletion = topic.deletion
    retired = range(deletion.delete_partitions, deletion.previous_count) if deletion is not None else range(0)
    return [p for p in topic.partitions if p.phase is not None and (p.phase != "done" or p.partition in retired)]


def _steps(changing: list[PartitionReport]) -> list[list[PartitionReport]]:
    return alike(changing, lambda p: (p.phase, p.reason))


@contextmanager
def progress_on(out: TextIO) -> Iterator[Progress]:
    """Show a live display if ``out`` is a terminal, else plain lines."""
    if not out.isatty():
        yield Progress(out)
        return
    console = Console(file=out, markup=False, emoji=False)  # a name may look like markup
    # Lines that are printed during the display go to standard output even if that is a pipe.
    with Live(console=console, refresh_per_second=4, transient=False, redirect_stdout=sys.stdout.isatty()) as live:
        yield Progress(out, live)


def _raise(error: RequestRefused) -> None:
    raise error


def begin_none(progress: Progress) -> Sequence[str]:
    """Begin no further change."""
    return ()


def wait_until_done(
    topics: Sequence[str],
    describe: Callable[[Sequence[str]], Sequence[TopicDescription]],
    changed: threading.Event,
    progress: Progress,
    failure: Callable[[], BaseException | None],
    interval_s: float = CHECK_INTERVAL_S,
    ended: Callable[[TopicDescription], bool] = lambda topic: topic.phase == "done",
    lost: Callable[[RequestRefused], None] = _raise,
    begin: Begin = begin_none,
) -> None:
    """Show the progress of topics until no change is under way and none begins.

    Checks repeat at each change of modes, and at least every ``interval_s``. A failed check is noted and repeated.

    Args:
        describe: describes the topics that have not ended. Raises RequestRefused for the first that does not exist.
        changed: set by a listener for changes; cleared here.
        failure: returns the error that has stopped the controller in this process. The error ends all waits.
        ended: returns whether to stop waiting for a topic; called with each description.
        lost: called with the error about a topic that no longer exists. The wait for this topic ends.
    """
    pending = list(topics)
    while True:
        changed.clear()
        pending += begin(progress)
        if not pending:
            return
        checked = len(pending)
        try:
            descriptions = describe(pending)
            progress.show(*descriptions)
            for topic in descriptions:
                if ended(topic):
                    pending.remove(topic.topic)
        except (ClusterError, ModeSourceError) as error:
            progress.note(f"cannot read the progress now: {error}")
        except RequestRefused as error:
            if error.topic not in pending:
                raise
            lost(error)
            pending.remove(error.topic)
        if len(pending) < checked:  # other topics may begin now
            continue
        if (error_now := failure()) is not None:
            raise error_now
        changed.wait(interval_s)


def wait_for_topics(
    session: Session,
    topics: Sequence[str],
    failure: Callable[[], BaseException | None],
    ended: Callable[[TopicDescription], bool],
    lost: Callable[[RequestRefused], None],
    begin: Begin = begin_none,
) -> None:
    """Show the progress of ``topics`` on standard error, by :func:`wait_until_done`."""
    changed, watched = threading.Event(), set(topics)

    def listen(views: Mapping[str, TopicView]) -> None:
        if not views.keys().isdisjoint(watched):
            changed.set()

    def begin_watched(progress: Progress) -> Sequence[str]:
        begun = begin(progress)
        watched.update(begun)
        return begun

    def check(pending: Sequence[str]) -> list[TopicDescription]:
        # Each check has its own connection, because an interrupted check may still use one.
        with Session(session.conf, session.config, session.controller) as own:
            return describe_changes(own, pending)

    views = registry.acquire(session.conf, session.config)
    try:
        views.subscribe(listen)
        with progress_on(sys.stderr) as progress:

            def describe(pending: Sequence[str]) -> list[TopicDescription]:
                return run_interruptibly(partial(check, pending))

            wait_until_done(topics, describe, changed, progress, failure, ended=ended, lost=lost, begin=begin_watched)
    finally:
        views.unsubscribe(listen)
        views.close()
