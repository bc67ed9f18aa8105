"""What Spark counts for a plan is what a sample of every record says."""

from __future__ import annotations

import math
import pickle
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeaware.lifecycle.facts import TopicFacts
from modeaware.plan.effects import Counted, Effect
from modeaware.plan.recognise import recognise
from modeaware.plan.report import ResizePlan, ask_for_counts, make_plan
from modeaware.plan.sample import Sample, TopicLook
from modeaware.spark import planning
from modeaware.spark.planning import Counting, Sums, Tally
from partitioners import PURE_HASHES, Hash
from partitioners.hashes import murmur2
from partitioners.minimal_movement import jump_over
from tests.support.plan_samples import Place, records_of, sample_of, some_keys

COUNT, NOW_MS = 12, 1_700_000_000_000
LOOK = TopicLook(TopicFacts("orders", "id", COUNT))
CRC32 = PURE_HASHES[Hash.CRC32]
Batch = pa.RecordBatch
PLACES: dict[str, Place] = {
    "murmur2": lambda key, n: murmur2(key, 12) if key is not None else n % 12,
    "murmur2 of nulls too": lambda key, _: murmur2(key or b"", 12),
    "crc32": lambda key, n: CRC32(key, 12) if key else n % 12,
    "none": lambda key, n: n % 12,
    "own": lambda key, _: sum(key or b"") * 7 % 12,
    "mixed": lambda key, n: (murmur2 if n % 2 else CRC32)(key or b"", 12),
    "shrunk": lambda key, n: murmur2(key or b"", 12 if n < 500 else 6),
    "grown": lambda key, n: murmur2(key or b"", 8 if n < 1500 else 12),
    "minimal": lambda key, _: jump_over(murmur2)(key or b"", 12),
    "partly": lambda key, n: n // 2 % 12 if n % 2 else murmur2(key or b"", 12),
}
KEYS: dict[str, list[bytes | None]] = {
    "many": [*some_keys(500, 3000)],
    "some without": [*some_keys(300, 2000), *[None] * 400, *[b""] * 100],
    "none with": [None] * 300,
    "none": [],
}


def rows_of(sample: Sample) -> list[tuple[bytes | None, int, int, int, int, int]]:
    """As Spark groups them: by key and partition, the rows of a key side by side, null first."""
    groups = defaultdict(list)
    for record in sample.records:
        groups[record.key, record.partition].append(record)
    ordered = sorted(groups, key=lambda each: (each[0] is not None, each[0] or b"", each[1]))
    return [
        (key, p, len(own), sum(r.size for r in own), min(r.timestamp_ms for r in own), max(r.timestamp_ms for r in own))
        for (key, p) in ordered
        for own in [groups[key, p]]
    ]


def batches_of(rows: Sequence[tuple[bytes | None, int, int, int, int, int]], length: int) -> Iterable[Batch]:
    names = ["key", "partition", "records", "sizes", "first_ms", "last_ms"]
    types = [pa.binary(), pa.int32(), *[pa.int64()] * 4]
    for at in range(0, len(rows), length):
        columns = zip(*rows[at : at + length], strict=True)
        yield Batch.from_arrays([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)


def counted(sample: Sample, target: int, tasks: int = 3, length: int = 100) -> Counted:
    """Each key is counted by one of several tasks, and the sums take the way they take through Spark."""
    question = ask_for_counts(sample, recognise(sample), target)
    shares: list[list[tuple[bytes | None, int, int, int, int, int]]] = [[] for _ in range(tasks)]
    for row in rows_of(sample):
        shares[sum(row[0] or b"") % tasks].append(row)
    tally = Tally(question)
    for share in shares:
        for batch in Counting(question)(batches_of(share, length)):
            for row in batch.to_pylist():
                tally.merge(Sums(**row))
    return tally.counted()


def both(sample: Sample, target: int) -> tuple[ResizePlan, ResizePlan]:
    recognition = recognise(sample)
    by_spark = make_plan(LOOK, sample, target, NOW_MS, recognition=recognition, counted=counted(sample, target))
    return make_plan(LOOK, sample, target, NOW_MS), by_spark


def figures(effect: Effect) -> dict[str, float | None]:
    """All of it, flat, so that it can be compared with a tolerance."""
    shares = {"keys": effect.keys, "records": effect.records, "bytes": effect.bytes}
    return {
        **{name: share.value if share is not None else None for name, share in shares.items()},
        **{f"load {p}": load for p, load in enumerate(effect.load)},
        **{
            name: getattr(effect, name) for name in ("target", "divides", "survivors", "expected", "least", "mean_load")
        },
    }


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("target", [4, 5, 24])
def test_counting_says_what_a_sample_of_everything_says(place: str, keys: str, target: int) -> None:
    sample = sample_of(records_of(KEYS[keys], PLACES[place]), COUNT)
    by_sample, by_spark = both(sample, target)
    for exact, sampled in zip(
        (by_spark.unchanged, *by_spark.effects), (by_sample.unchanged, *by_sample.effects), strict=True
    ):
        assert figures(exact) == pytest.approx(figures(sampled))
    assert all(s.margin == 0 for e in by_spark.effects for s in (e.keys, e.records, e.bytes) if s is not None)
    one, other = by_sample.recognition, by_spark.recognition
    assert (other.keyed, other.null, other.empty, other.keys) == (one.keyed, one.null, one.empty, one.keys)
    assert (other.null_home, other.verdict) == (one.null_home, one.verdict)
    assert other.together == (None if one.together is None else pytest.approx(one.together))
    for before, after in zip((*one.placements, *one.evidence), (*other.placements, *other.evidence), strict=True):
        assert after.candidate == before.candidate
        for name in ("matched", "of", "chance", "records_share", "log10_odds"):
            assert math.isclose(getattr(after, name), getattr(before, name), rel_tol=1e-9, abs_tol=1e-9), name
    assert by_spark.span_ms == by_sample.span_ms
    assert by_spark.counted is not None
    assert by_spark.counted.records == len(sample.records)


@pytest.mark.parametrize("length", [1, 2, 7, 1000])
def test_a_key_may_go_on_in_the_next_batch(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(planning, "_AT_ONCE", 5)  # private: as many rows as matter would take minutes
    sample = sample_of(records_of(KEYS["some without"], PLACES["none"]), COUNT)
    some, all_ = counted(sample, 5, length=length), counted(sample, 5, tasks=1, length=10_000)
    assert (some.held, some.placed, some.keys, some.repeated) == (all_.held, all_.placed, all_.keys, all_.repeated)
    assert some.together == pytest.approx(all_.together)
    assert some.evidence == {name: pytest.approx(fit) for name, fit in all_.evidence.items()}


@given(st.lists(st.tuples(st.sampled_from([None, b"", b"a", b"b", b"long" * 2000]), st.integers(0, 11)), max_size=60))
def test_any_few_records(sent: list[tuple[bytes | None, int]]) -> None:
    sample = sample_of([(partition, key, 10) for key, partition in sent], COUNT)
    by_sample, by_spark = both(sample, 5)
    assert figures(by_spark.chosen) == pytest.approx(figures(by_sample.chosen))
    assert by_spark.recognition.keyed == by_sample.recognition.keyed


def test_what_a_sample_took_for_one_home_is_not_where_others_lie() -> None:
    """Of records without a key the sample may see one partition only, the whole topic several."""
    sample = sample_of([(3, None, 10)] * 300, COUNT)
    recognition = recognise(sample)
    assert recognition.null_home == 3
    all_ = counted(sample_of([(3, None, 10)] * 300 + [(5, None, 10)], COUNT), 5)
    assert make_plan(LOOK, sample, 5, NOW_MS, recognition=recognition, counted=all_).recognition.null_home is None


def test_no_key_leaves_the_executors() -> None:
    sample = sample_of(records_of([b"secret-%d" % n for n in range(3000)], PLACES["murmur2"]), COUNT)
    question = ask_for_counts(sample, recognise(sample), 5)
    batches = list(Counting(question)(batches_of(rows_of(sample), 500)))
    assert sum(batch.num_rows for batch in batches) <= 1 + 12 + sum(question.counts) + 4 + len(question.placements)
    assert b"secret" not in pickle.dumps((question, [batch.to_pylist() for batch in batches]))
