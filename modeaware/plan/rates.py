"""The rates at which a topic is written, from the offsets of its logs at points in time. Pure.

Brokers keep no rates. But ListOffsets returns the offset of the first record at or after a given time. The difference
of two such offsets is the number of records between the times. The times are the ends of days and hours. The days are
those of a *window*: whole days up to now. The hours are those of its two busiest days. Each figure has its traps:

*Retention may cut the window.* Then the log starts above offset 0, and its first record is also the first record of the
window. From the timestamp of this record on, the log shows all writes.

*Producers set timestamps.* A timestamp may be in the future. Then brokers return the record with that timestamp for
every later time, so the times of later records are unknown. The greatest timestamp (MAX_TIMESTAMP) reveals the case.
The records after the last point in time may then belong to any hour. They are added to the busiest hour, which gives an
upper bound. If no timestamp is in the future, the records after the last point were written during the scan: they
belong to the last hour. If brokers set the timestamps (LogAppendTime), records that were copied into a topic count in
the hour of the copy.

*Offsets are not records.* The marker of a transaction takes an offset. Up to half of the offsets may be markers, so
records/s are an upper bound. On a compacted topic, offsets count all writes, although few records may be left.

*Bytes are offsets times the mean size.* For the whole log, the result is exact. For the peak, it is an estimate, as if
all records had one size. Compressed batches are denser at a peak: measured estimates were 32 to 171 % too high. If
records have grown, the estimate is too low (measured: 44 %). The estimate may be wrong if the configs name a codec, or
partitions differ in record size. On a compacted topic, the log's size does not show the bytes written. The size of a
tiered log is that of its local part, so the size is divided by the offsets of that part.

*A sample corrects by a ratio.* Batches are read from few partitions, whose records may be far smaller than those of
others. So their bytes per offset are no measure of the topic. But divided by the mean of the same partitions' logs, the
bytes show by which factor the peak is denser or larger than usual. The factor is applied to all partitions, each with
its own mean size and its own offsets of the busiest hour. Markers count on both sides, as offsets and as bytes.

*Days come before hours.* All writes of the busiest day, as if made in one hour, are an upper bound of the peak. This
bound needs no further request.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from modeaware.cluster.stragglers import all_batches

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
HOURS = 24
FUTURE_MS = HOUR_MS
"""A timestamp counts as future if it is later than now by more than this; clocks are assumed to differ by less."""
BUSIEST_DAYS = 2
_CODEC, _TRANSACTIONAL = 0x07, 0x10
_UNEVEN, _MANY = 1.5, 1_000
"""A topic is uneven if the mean record sizes of its partitions differ by more than _UNEVEN (a factor). Partitions with
fewer offsets than _MANY do not count."""
_UNCOMPRESSED = ("producer", "uncompressed", None)


@dataclass(frozen=True)
class Window:
    """The time over which rates are read: whole days up to ``now_ms``."""

    now_ms: int
    days: int

    @property
    def length_ms(self) -> int:
        return self.days * DAY_MS

    @property
    def points_ms(self) -> tuple[int, ...]:
        """The start of the window, then the end of each of its days."""
        return tuple(self.now_ms - day * DAY_MS for day in range(self.days, -1, -1))

    def hour_ms(self, hour: int) -> int:
        """Return the start of an hour that is counted from the start of the window."""
        return self.now_ms - self.length_ms + hour * HOUR_MS


@dataclass(frozen=True)
class PeakBatches:
    """Batches of a partition from its topic's busiest hour, by their headers.

    Attributes:
        records: the number of records, without markers.
        offsets, size_bytes: the sums over all batches and markers; bytes as in the log.
        compressed, transactional: whether at least one batch is compressed or transactional.
    """

    records: int
    offsets: int
    size_bytes: int
    compressed: bool = False
    transactional: bool = False


def peak_batches(read: bytes, end: int) -> PeakBatches | None:
    """Return the sums over the batches that begin before the offset ``end``; None if no batch has records."""
    batches = [batch for batch in all_batches(read) if batch.base_offset < end]
    if not (records := sum(batch.record_count for batch in batches if not batch.is_marker)):
        return None
    offsets = sum(batch.last_offset - batch.base_offset + 1 for batch in batches)
    compressed, transactional = (any(b.attributes & bits for b in batches) for bits in (_CODEC, _TRANSACTIONAL))
    return PeakBatches(records, offsets, sum(batch.size_bytes for batch in batches), compressed, transactional)


@dataclass
class TopicLogs:
    """The logs of a topic, in arrays with an item per partition: a cluster may have 200 000 partitions.

    Attributes:
        starts, ends: the log start and the log end. The end is -1 if the leader did not answer.
        at_start: the offset of the first record of the window, limited to the log; without such a record, the log end.
        first_ms: the timestamp of that record; -1 if there is none, or the timestamp is unknown.
        sizes: the bytes of the log on its leader's disks (of a tiered log, the local part); -1 if unknown.
        reached: for each point of the window, the first offset at or after it, summed over all partitions.
        newest_ms: the greatest timestamp; -1 if there is no record.
        hours: day -> sums as in ``reached``, at the ends of the day's hours except the last.
        peak_offsets: partition -> the number of offsets written in the busiest hour, if batches were to be read.
        batches: partition -> batches from the busiest hour, of the partitions that were sampled.
        local: partition -> the start of the local part, of tiered logs.
    """

    starts: MutableSequence[int]
    ends: MutableSequence[int]
    at_start: MutableSequence[int]
    first_ms: MutableSequence[int]
    sizes: MutableSequence[int]
    reached: Sequence[int] = ()
    newest_ms: int = -1
    hours: Mapping[int, Sequence[int]] = field(default_factory=dict)
    peak_offsets: dict[int, int] = field(default_factory=dict)
    batches: dict[int, PeakBatches] = field(default_factory=dict)
    local: dict[int, int] = field(default_factory=dict)

    @property
    def unread(self) -> tuple[int, ...]:
        """The partitions whose leader did not answer."""
        return tuple(p for p, end in enumerate(self.ends) if end < 0)

    @property
    def record_bytes(self) -> float | None:
        """The mean bytes per offset; None if there are records, but no size of a log with records is known."""
        known = [(length, size) for length, size in self._sized if length > 0 and size >= 0]
        if not known:
            has_records = any(end > start for start, end in zip(self.starts, self.ends, strict=True))
            return None if has_records else 0.0
        return sum(size for _, size in known) / sum(length for length, _ in known)

    @property
    def peak_sizes(self) -> dict[int, float]:
        """The bytes of each partition in the busiest hour, as if its offsets then had the mean size of its log; without
        partitions whose size is unknown."""
        lengths = {p: self.sized_offsets(p) for p in self.peak_offsets if self.sizes[p] >= 0}
        return {p: self.peak_offsets[p] * self.sizes[p] / length for p, length in lengths.items() if length > 0}

    @property
    def peak_record_bytes(self) -> float | None:
        """The mean bytes per offset in the busiest hour, corrected by batches; None if none were read."""
        expected = self.peak_sizes
        sampled = {p: self.peak_offsets[p] * some.size_bytes / some.offsets for p, some in self.batches.items()}
        usual = sum(expected[p] for p in sampled)
        if not usual:
            return None
        mean = sum(expected.values()) / sum(self.peak_offsets[p] for p in expected)
        return mean * sum(sampled.values()) / usual

    @property
    def is_uneven(self) -> bool:
        """Whether the records of some partitions are far larger than those of others."""
        means = [size / length for length, size in self._sized if length >= _MANY and size >= 0]
        return bool(means) and max(means) > _UNEVEN * min(means)

    @property
    def is_tiered(self) -> bool:
        """Whether a part of the topic is only in remote storage."""
        return any(local > self.starts[p] for p, local in self.local.items())

    @property
    def _sized(self) -> list[tuple[int, int]]:
        """For each log, the number of offsets whose bytes are in ``sizes``, and these bytes."""
        return [(self.sized_offsets(p), size) for p, size in enumerate(self.sizes)]

    def sized_offsets(self, p: int) -> int:
        """Return the number of offsets whose bytes are in ``sizes``."""
        return self.ends[p] - self.local.get(p, self.starts[p])


def unread_logs(count: int) -> TopicLogs:
    """Return logs of ``count`` partitions, before anything is read."""

    def filled(value: int) -> array[int]:
        return array("q", [value]) * count

    return TopicLogs(starts=filled(0), ends=filled(-1), at_start=filled(0), first_ms=filled(-1), sizes=filled(-1))


@dataclass(frozen=True)
class LogConfigs:
    """The configs that determine the meaning of offsets and sizes; None if unknown."""

    cleanup_policy: str | None = "delete"
    retention_ms: int | None = 7 * DAY_MS
    timestamp_type: str | None = "CreateTime"
    compression: str | None = "producer"
    tiered: bool | None = False


@dataclass(frozen=True)
class Note:
    """Why a figure may be wrong, or is only a bound.

    Attributes:
        code: one of window-cut, future-timestamps, append-time, compressed, uneven, tiered, markers, corrected,
            peak-bound, size-unknown, configs-unknown or groups-unknown.
    """

    code: str
    text: str


@dataclass(frozen=True)
class Rates:
    """The write rates of a topic, per second; bytes as in one replica of the log.

    Attributes:
        records_per_s, bytes_per_s: the mean over the part of the window that the log shows.
        peak_records_per_s, peak_bytes_per_s: the rates of the busiest hour, or upper bounds of them.
        is_bound: whether the peak is only an upper bound.
        seen_ms: how much of the window the log shows.
        written: the offsets written in the window, as far as the log shows.
        last_write_ms: the greatest timestamp; null if no record is left.
    """

    records_per_s: float
    bytes_per_s: float | None
    peak_records_per_s: float
    peak_bytes_per_s: float | None
    is_bound: bool
    seen_ms: int
    written: int
    last_write_ms: int | None
    busiest_days: tuple[int, ...] = field(default=(), metadata={"json": None})
    """Days whose hours may contain the peak, the busiest first."""
    busiest_hour: int | None = field(default=None, metadata={"json": None})
    """The busiest hour, counted from the start of the window; None if unknown."""
    notes: tuple[Note, ...] = field(default=(), metadata={"json": None})


def rates(logs: TopicLogs, configs: LogConfigs, window: Window) -> Rates:
    """Return the write rates, from the partitions whose leaders answered."""
    mean = _Mean(logs, configs, window)
    total = sum(end for end in logs.ends if end >= 0)
    unplaced = total - logs.reached[-1] if logs.newest_ms > window.now_ms + FUTURE_MS else 0
    edges = [*logs.reached[:-1], total - unplaced]
    days = [after - before for before, after in pairwise(edges)]
    busiest = tuple(sorted((day for day, n in enumerate(days) if n), key=lambda day: (-days[day], day))[:BUSIEST_DAYS])
    hours: dict[int, int] = {}
    for day in busiest:
        ends = [edges[day], *logs.hours[day], edges[day + 1]] if day in logs.hours else []
        hours |= {day * HOURS + hour: after - before for hour, (before, after) in enumerate(pairwise(ends))}
    is_known = len(hours) == HOURS * len(busiest)
    size, corrected = logs.record_bytes, logs.peak_record_bytes
    peak = (max(hours.values(), default=0) if is_known else max(days)) + unplaced
    peak_per_s = peak / HOUR_MS * 1000
    peak_size = size if corrected is None else corrected
    return Rates(
        mean.records_per_s,
        None if size is None else mean.bytes_per_s,
        peak_per_s,
        None if peak_size is None else peak_per_s * peak_size,
        not is_known or unplaced > 0,
        mean.seen_ms,
        mean.written,
        logs.newest_ms if logs.newest_ms >= 0 else None,
        busiest,
        max(hours, key=lambda hour: (hours[hour], -hour)) if hours and is_known else None,
        tuple(Note(*note) for note in _notes(logs, configs, window, mean, unplaced, is_known)),
    )


class _Mean:
    """The mean over the part of the window that each log shows."""

    def __init__(self, logs: TopicLogs, configs: LogConfigs, window: Window) -> None:
        self.records_per_s = self.bytes_per_s = 0.0
        self.seen_ms = self.written = 0
        self.cut = False
        for p, end in enumerate(logs.ends):
            if end < 0:
                continue
            shown_ms, is_cut = _shown(logs, p, configs, window)
            self.cut, self.seen_ms = self.cut or is_cut, max(self.seen_ms, shown_ms)
            new = end - logs.at_start[p]
            self.written += new
            if new and shown_ms:
                per_s = new / shown_ms * 1000
                self.records_per_s += per_s
                if (length := logs.sized_offsets(p)) > 0:
                    self.bytes_per_s += per_s * max(logs.sizes[p], 0) / length


def _shown(logs: TopicLogs, p: int, configs: LogConfigs, window: Window) -> tuple[int, bool]:
    """Return how much of the window a partition's log shows, and whether the window may have had earlier records."""
    start, first_ms = logs.starts[p], logs.first_ms[p]
    if logs.at_start[p] > start:
        return window.length_ms, False
    if start == logs.ends[p]:
        covers = start == 0 or (configs.retention_ms is not None and configs.retention_ms >= window.length_ms)
        return (window.length_ms, False) if covers else (0, True)
    if first_ms < 0:
        return window.length_ms, start > 0
    return min(max(window.now_ms - first_ms, 60_000), window.length_ms), start > 0


def _notes(
    logs: TopicLogs, configs: LogConfigs, window: Window, mean: _Mean, unplaced: int, is_known: bool
) -> Iterable[tuple[str, str]]:
    """Yield the notes, by code and text."""
    if mean.cut:
        shown = f"{mean.seen_ms // HOUR_MS} of {window.days * HOURS} hours"
        yield "window-cut", f"the log covers {shown}: earlier records may have been removed"
    if unplaced:
        yield (
            "future-timestamps",
            f"{unplaced} records follow a timestamp in the future: their time is unknown, and the peak includes all",
        )
    if configs.timestamp_type == "LogAppendTime":
        yield "append-time", "brokers set timestamps: copied records count at the time of the copy"
    if logs.record_bytes is None:
        needed = (
            "the local part of a tiered log has no known size"
            if configs.tiered
            else "sizes need DESCRIBE on the cluster"
        )
        yield "size-unknown", f"bytes/s are unknown: {needed}"
    yield from _size_notes(logs, configs)
    if not is_known:
        yield "peak-bound", "the peak is an upper bound: the busiest day, as if written in one hour"


def _size_notes(logs: TopicLogs, configs: LogConfigs) -> Iterable[tuple[str, str]]:
    """Yield the notes about the size of records at the peak."""
    batches, estimate = logs.batches.values(), "peak bytes/s are an estimate"
    more = "; --sample improves it"
    if any(some.transactional for some in batches):
        yield "markers", "written in transactions: their markers count as records, at most one for each record"
    if batches:
        records = sum(some.records for some in batches)
        how = "compressed" if any(some.compressed for some in batches) else "not compressed"
        more = f"; only {len(batches)} partitions were sampled"
        yield "corrected", f"peak bytes/s are corrected by {records} records sampled in the busiest hour ({how})"
    elif configs.compression not in _UNCOMPRESSED:
        yield "compressed", f"compressed ({configs.compression}): {estimate}, often far above; --sample corrects it"
    if batches and logs.batches.keys() >= {p for p, n in logs.peak_offsets.items() if n}:
        return
    if logs.is_uneven:
        yield "uneven", f"records of its partitions differ in size: {estimate}{more}"
    if logs.is_tiered:
        yield "tiered", f"tiered: {estimate}, by the records on the brokers' disks{more}"
