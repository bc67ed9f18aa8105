"""The interface of partitioners, and their facts.

A :class:`Partitioner` makes a :class:`TopicPartitioner` for each topic, which picks one of ``count`` candidates by
index (franz-go's design). The caller chooses the candidates. For a record whose key must stay in one partition, they
are all partitions that take writes. For any other record, they are the partitions that take writes and have a leader.

Callers do not distinguish partitioners by name. They use these facts:

====================================  ==================================================================
fact                                  where it is
====================================  ==================================================================
follows queue sizes (KIP-794)         :func:`wants_load`: its topic partitioners are :class:`LoadAware`
needs the end of batches (KIP-480)    :func:`wants_batches`: they are :class:`BatchAware`
which keys are hashed                 :class:`Rule`
index of a hash; share that moves     :attr:`Rule.placer`
hashes keys as Java's producer does   :attr:`Rule.is_javas`
spreads records that are not hashed   :attr:`Rule.spreads`
====================================  ==================================================================
"""

from __future__ import annotations

import math
import operator
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypedDict, runtime_checkable

from partitioners.hashes import PURE_HASHES, Hash, HashFunction, positive

DEFAULT_LINGER_S = 0.01
DEFAULT_BATCH_SIZE = 16_384
SAMPLED_KEYS = 2000


class TopicPartitioner(Protocol):
    """Picks among the candidates for one topic. May hold state (sticking); safe to use from several threads."""

    def requires_consistency(self, key: bytes | None) -> bool:
        """Return whether equal keys need the same candidates. If not, the caller may offer only those with a leader."""
        ...

    def partition(self, key: bytes | None, count: int) -> int:
        """Return the index of the pick, ``0 <= index < count``. Raise ValueError if ``count`` is not positive.

        ``key`` is the serialized key, or None for a record without a key.
        """
        ...


def checked_index(given: object, count: int, which: str) -> int:
    """Return ``given``, a partitioner's pick. Raise ValueError if it is not an index below ``count``, because an
    application's own partitioner may return anything. ``which`` describes the partitioner in the message."""
    try:
        index = operator.index(given)  # type: ignore[arg-type] # the call checks the type
    except TypeError:
        index = -1
    if 0 <= index < count:
        return index
    raise ValueError(f"the partitioner {which} returned {given!r}, which is not an index below {count}")


@runtime_checkable
class BatchAware(Protocol):
    """A :class:`TopicPartitioner` that changes its pick when a batch ends (KIP-480)."""

    def on_new_batch(self, index: int) -> None:
        """Stick to another candidate, because the next record for candidate ``index`` would begin a new batch.

        A call has no effect if the pick is no longer ``index``, so several threads may report the same batch.
        """
        ...


@runtime_checkable
class LoadAware(Protocol):
    """A :class:`TopicPartitioner` that follows the sizes of records and queues (KIP-794)."""

    def partition_by_load(self, key: bytes | None, count: int, size: int, load: Sequence[int] = ()) -> int:
        """Return the index of a pick by the load. Raise ValueError if ``load`` does not have ``count`` entries.

        Args:
            size: the record's size in bytes.
            load: the length of each candidate's queue, in bytes, batches or records (>= 0); empty if unknown.
        """
        ...


class Partitioner(Protocol):
    """Makes a partitioner for each topic."""

    def for_topic(self, topic: str) -> TopicPartitioner:
        """Return a new topic partitioner, with its own state. A client calls this while it sends a record to the topic;
        of concurrent calls, one result is used. The name is empty if the caller inspects the result, or knows none.
        """
        ...


def is_built_in(partitioner: Partitioner) -> bool:
    """Return whether ``partitioner`` is one of this package's own, so that its methods run no code of an application,
    except functions given to it (:class:`Options`, ``hash_function``)."""
    is_ours = type(partitioner).__module__.partition(".")[0] == __name__.partition(".")[0]
    return is_ours and isinstance(partitioner, HashPartitioner)


def wants_load(partitioner: Partitioner) -> bool:
    """Return whether the picks of ``partitioner`` follow the load of the candidates."""
    return _makes(partitioner, LoadAware)


def wants_batches(partitioner: Partitioner) -> bool:
    """Return whether ``partitioner`` needs reports of the end of batches."""
    return _makes(partitioner, BatchAware)


def _makes(partitioner: Partitioner, capability: type) -> bool:
    try:
        return isinstance(partitioner.for_topic(""), capability)
    except Exception:  # noqa: BLE001 - an application's partitioner may accept only its topics, not ""
        return False


def share_moved(old: int, new: int) -> float:
    """Return the share of keys that move from ``old`` to ``new`` partitions if the index is ``hash % count``.

    Of ``lcm(old, new)`` consecutive hashes, ``min(old, new)`` have the same remainder for ``old`` as for ``new``.
    """
    return 1 - min(positive(old), positive(new)) / math.lcm(old, new)


def least_share_moved(old: int, new: int) -> float:
    """Return the least share of keys that has to move, by whatever rule, so that every partition has an equal share."""
    return 1 - min(positive(old), positive(new)) / max(old, new)


@dataclass(frozen=True)
class Placer:
    """The way from a key to its index: the key's hash (a number) modulo the count. Subclasses may use another rule.

    Attributes:
        name: the name of the hash; or the partitioner's name, if the index is not the hash modulo the count.
        hash: the hash of the key.
        clients: the clients that place keys by this function.
        hashes_empty: most of these clients hash an empty key like any other key.
    """

    name: str
    hash: Hash
    clients: str
    hashes_empty: bool = True

    def index(self, number: int, count: int) -> int:
        """Return the index for a key's number (:data:`partitioners.NUMBERS`) among ``count`` > 0 candidates."""
        return number % count

    def function(self, hash_function: HashFunction) -> HashFunction:
        """Return the function from key and count to the index, over an implementation of :attr:`hash`."""
        return hash_function

    def share_moved(self, old: int, new: int) -> float:
        """Return the share of all keys that move from ``old`` to ``new`` partitions."""
        return share_moved(old, new)


REMAINDERS: Mapping[Hash, Placer] = {
    Hash.MURMUR2: Placer(
        "murmur2", Hash.MURMUR2, "Kafka's Java producer, kafka-python, and librdkafka's murmur2 and murmur2_random"
    ),
    Hash.CRC32: Placer(
        "crc32",
        Hash.CRC32,
        "librdkafka's consistent_random, its default (confluent-kafka), and consistent",
        hashes_empty=False,
    ),
    Hash.FNV1A: Placer("fnv1a", Hash.FNV1A, "Sarama, and librdkafka's fnv1a and fnv1a_random"),
}


@dataclass(frozen=True)
class Rule:
    """How a named partitioner treats keys.

    Attributes:
        name: the partitioner's name.
        hash: the hash of keys, or None if keys are not hashed.
        null_hashed: a record without a key is hashed as if its key were empty.
        empty_hashed: an empty key is hashed like any other key.
        placer: the way from the hash to an index, or None if keys are not hashed. Default: the hash modulo the count.
        spreads: records that are not hashed are spread. If false, the application must choose their partitions.
    """

    name: str
    hash: Hash | None
    null_hashed: bool
    empty_hashed: bool
    placer: Placer | None = None
    spreads: bool = True

    def __post_init__(self) -> None:
        if self.placer is None and self.hash is not None:
            object.__setattr__(self, "placer", REMAINDERS[self.hash])

    def is_hashed(self, key: bytes | None) -> bool:
        """Return whether the key's hash decides, so that equal keys share a partition."""
        if self.hash is None:
            return False
        if key is None:
            return self.null_hashed
        return self.empty_hashed or len(key) > 0

    def is_sticky(self, key: bytes | None) -> bool:
        """Return whether a record with this key goes to the sticky pick, as records without a key do if not hashed.

        In librdkafka, a record with an empty key goes there, too, if the partitioner hashes only other keys.
        """
        return not self.is_hashed(key) and (key is None or self.hash is not None)

    @property
    def is_javas(self) -> bool:
        """Whether Java's producer places the same keys at the same index."""
        return self.placer == REMAINDERS[Hash.MURMUR2] and self.empty_hashed and not self.null_hashed


class Options(TypedDict, total=False):
    """The keyword arguments of every :class:`HashPartitioner`."""

    linger_s: float
    batch_size: int
    clock: Callable[[], float]
    randomness: Callable[[], float]


class HashPartitioner:
    """A partitioner that follows a rule. Made by :func:`~partitioners.named`, or by its own class.

    Args:
        hash_function: an implementation of the rule's hash, for example in C; by default the one in Python.
        rule: replaces the rule of the class.
        linger_s: how long records without a key stick to one pick, in seconds. With 0, each record has a new pick.
        batch_size: how many bytes of records stick to one pick (Java: ``batch.size``). ValueError if not positive.
        clock: monotonic seconds.
        randomness: numbers ``0 <= x < 1``.

    Attributes:
        hash_function: returns the index for a key and a count, or is None if the rule hashes no keys.
        rule, linger_s, batch_size, clock, randomness: as given.
    """

    RULE: ClassVar[Rule]
    _TOPIC: ClassVar[type[TopicHashPartitioner]]

    def __init__(
        self,
        hash_function: HashFunction | None = None,
        *,
        rule: Rule | None = None,
        linger_s: float = DEFAULT_LINGER_S,
        batch_size: int = DEFAULT_BATCH_SIZE,
        clock: Callable[[], float] = time.monotonic,
        randomness: Callable[[], float] = random.random,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1 byte, not {batch_size}")
        self.rule = rule or self.RULE
        self.hash_function: HashFunction | None = None
        if self.rule.placer is not None:
            self.hash_function = self.rule.placer.function(hash_function or PURE_HASHES[self.rule.placer.hash])
        self.linger_s = linger_s
        self.batch_size = batch_size
        self.clock = clock
        self.randomness = randomness

    def for_topic(self, topic: str) -> TopicPartitioner:
        """Return a new topic partitioner, with its own state."""
        return self._TOPIC(self, topic)


class TopicHashPartitioner(ABC):
    """Hashes the keys that the rule hashes; a subclass spreads the other records."""

    def __init__(self, made_by: HashPartitioner, topic: str) -> None:
        self._made_by = made_by
        self._topic = topic
        self._rule = made_by.rule
        self._hash = made_by.hash_function

    def requires_consistency(self, key: bytes | None) -> bool:
        return self._rule.is_hashed(key)

    def partition(self, key: bytes | None, count: int) -> int:
        if self._hash is not None and self._rule.is_hashed(key):
            return self._hash(b"" if key is None else key, count)
        return self._spread(key, count)

    @abstractmethod
    def _spread(self, key: bytes | None, count: int) -> int:
        """Return the index for a record that is not hashed. Raise ValueError if ``count`` is not positive."""


def share_moved_of(keys: Iterable[bytes], index: Callable[[bytes, int], int], old: int, new: int) -> float:
    """Return the share of ``keys`` whose ``index`` differs for ``old`` and ``new``. A repeated key counts each time.

    Raise ValueError if there are no keys, or a count is not positive.
    """
    moved = [index(key, positive(old)) != index(key, positive(new)) for key in keys]
    if not moved:
        raise ValueError("the share of keys that move needs at least one key")
    return sum(moved) / len(moved)


def expected_share_moved(partitioner: Partitioner, old: int, new: int) -> float:
    """Return the share of keys that ``partitioner`` moves: exact if its rule is known, else that of 2000 random keys.

    The share is 0.0 if the partitioner hashes no keys. The error of the sample is below 0.03, with a probability of
    99 %. The sample is always the same.
    """
    if isinstance(partitioner, HashPartitioner):
        placer = partitioner.rule.placer
        return 0.0 if placer is None else placer.share_moved(old, new)
    topic = partitioner.for_topic("")
    numbers = random.Random(0)
    keys = [key for key in (numbers.randbytes(16) for _ in range(SAMPLED_KEYS)) if topic.requires_consistency(key)]
    return share_moved_of(keys, topic.partition, old, new) if keys else 0.0
