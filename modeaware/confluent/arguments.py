"""The arguments of AdminClient's methods: checks before anything is sent, and translations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from modeaware.chain import written_topic
from modeaware.confluent.controller_calls import REQUEST_TIMEOUT_S, DeletePartitions
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.librdkafka import NewPartitions, NewTopic, TopicPartition
from modeaware.lifecycle.commands import CreatePartitionsCommand
from modeaware.modelog.group_rules import GroupRule
from modeaware.views.source import Views
from modeaware.wire.retries import Deadline

_Key = TypeVar("_Key", TopicPartition, tuple[str, int])


def refuse_duplicates(topics: Iterable[str]) -> None:
    """Raise RequestRefused if a topic is named twice."""
    twice = next((topic for topic, times in Counter(topics).items() if times > 1), None)
    if twice is not None:
        raise RequestRefused(
            f"topic {twice!r} is named twice in one request; name each topic once",
            code=ErrorCode.INVALID_REQUEST,
            topic=twice,
        )


def refused_aliases(views: Views, topics: Iterable[str]) -> dict[str, RequestRefused]:
    """Return a mapping: each of ``topics`` that points to another topic -> the reason not to create it."""
    points_to = {topic: written_topic(topic, views.view).topic for topic in topics if views.view(topic).is_replaced}
    return {
        topic: RequestRefused(
            f"topic {topic!r} was replaced by {target!r}: clients that use its name write to and read {target!r}, so "
            f"there is nothing to create. To create another topic of that name, first end the alias: modeaware alias "
            f"forget {topic}",
            code=ErrorCode.TOPIC_ALREADY_EXISTS,
            topic=topic,
        )
        for topic, target in points_to.items()
    }


def check_numbers(new: NewTopic) -> None:
    """Raise ValueError, as the stock method does, for numbers that contradict the topic's assignment."""
    given = new.replica_assignment
    if not given:
        return
    if new.replication_factor != -1:
        raise ValueError(f"topic {new.topic!r}: replication_factor and replica_assignment are mutually exclusive")
    if new.num_partitions not in (-1, len(given)):
        raise ValueError(
            f"topic {new.topic!r}: replica_assignment has {len(given)} partitions, and num_partitions is "
            f"{new.num_partitions}: both must be equal"
        )


def check_wanted(partitions: Mapping[str, DeletePartitions]) -> None:
    """Raise TypeError for an argument of the wrong type, and RequestRefused for a count below 1."""
    for topic, wanted in partitions.items():
        if not isinstance(wanted, DeletePartitions):
            raise TypeError(f"topic {topic!r}: expected DeletePartitions, not {wanted!r}")
        count = wanted.total_count
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"topic {topic!r}: the partition count must be an int, not {count!r}")
        groups = wanted.accept_state_loss
        if isinstance(groups, str) or not all(isinstance(group, str) for group in groups):
            raise TypeError(f"topic {topic!r}: accept_state_loss must be group names, not {groups!r}")
        if count < 1:
            raise RequestRefused(
                f"topic {topic!r}: {count} partitions: at least 1 must stay",
                code=ErrorCode.INVALID_PARTITIONS,
                topic=topic,
            )


def checked_rules(rules: Iterable[GroupRule]) -> tuple[GroupRule, ...]:
    """Return the rules; raise TypeError if one is not a rule."""
    checked = tuple(rules)
    for rule in checked:
        if not isinstance(rule, GroupRule):
            raise TypeError(f"expected a GroupRule, not {rule!r}")
    return checked


def checked_keys(keys: Iterable[Any]) -> tuple[tuple[str, str, str], ...]:
    """Return the keys of rules; raise TypeError if one is not a key."""
    checked = tuple(keys)
    for key in checked:
        if not (isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key)):
            raise TypeError(f"expected (kind, group, topic) of a rule, not {key!r}")
    return checked


def check_delay_ms(delay_ms: int | None) -> None:
    """Raise TypeError for a value that is no delay, and RequestRefused for a delay below 0."""
    if delay_ms is None:
        return
    if isinstance(delay_ms, bool) or not isinstance(delay_ms, int):
        raise TypeError(f"the delay must be an int (milliseconds), not {delay_ms!r}")
    if delay_ms < 0:
        raise RequestRefused(
            f"invalid delay of {delay_ms} ms: pass 0 or more, or None to leave deletion to the topic's retention"
        )


def pairs(keys: Iterable[_Key]) -> dict[tuple[str, int], _Key]:
    """Return (topic, partition) -> the key as given; raise ValueError if a partition is named twice."""
    by_pair: dict[tuple[str, int], _Key] = {}
    for key in keys:
        pair = pair_of(key)
        if pair in by_pair:
            raise ValueError(f"partition {pair[0]}-{pair[1]} is named twice")
        by_pair[pair] = key
    return by_pair


def pair_of(key: Any) -> tuple[str, int]:
    """Return (topic, partition) of a key in either form; raise TypeError for any other value."""
    pair = (key.topic, key.partition) if isinstance(key, TopicPartition) else key
    match pair:
        case (str() as topic, int() as partition) if isinstance(pair, tuple) and not isinstance(partition, bool):
            return topic, partition
    raise TypeError(f"expected a TopicPartition or (topic, partition), not {key!r}")


def broker_ids(pair: tuple[str, int], replicas: Sequence[int]) -> tuple[int, ...]:
    """Return the replicas of a partition; raise TypeError if they are not broker ids."""
    if isinstance(replicas, str | bytes) or not isinstance(replicas, Sequence):
        raise TypeError(f"partition {pair[0]}-{pair[1]}: replicas must be a sequence of broker ids, not {replicas!r}")
    if any(isinstance(broker, bool) or not isinstance(broker, int) for broker in replicas):
        raise TypeError(f"partition {pair[0]}-{pair[1]}: broker ids are ints: {replicas!r}")
    return tuple(replicas)


def split_growths(
    views: Views, growths: Mapping[str, NewPartitions]
) -> tuple[dict[str, NewPartitions], dict[str, NewPartitions]]:
    """Return the growths for the brokers, and those for the controller. The controller gets the growths of topics with
    a record in the mode log. It also gets, and refuses, those of new topics whose old topic is not released yet."""
    waiting = {
        new_topic.topic for view in views.views().values() if (new_topic := view.replaced_by) and not new_topic.released
    }
    controlled = {topic for topic in growths if topic in waiting or views.view(topic).topic_id is not None}
    return (
        {topic: new for topic, new in growths.items() if topic not in controlled},
        {topic: new for topic, new in growths.items() if topic in controlled},
    )


def growth_command(
    topic: str, new: NewPartitions, assignments: Sequence[Sequence[int]] | None
) -> CreatePartitionsCommand:
    placed = tuple(tuple(brokers) for brokers in assignments) if assignments else None
    return CreatePartitionsCommand(topic, new.new_total_count, placed)


def deadline_of(kwargs: Mapping[str, Any]) -> Deadline:
    return Deadline(float(kwargs.get("request_timeout", REQUEST_TIMEOUT_S)))


def options_within(kwargs: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
    """Return the stock method's options. A given ``request_timeout`` is reduced to the time left: reading the modes has
    taken a part of it."""
    return {**kwargs, **({"request_timeout": deadline.left_s()} if "request_timeout" in kwargs else {})}


def is_validation(kwargs: Mapping[str, Any]) -> bool:
    return bool(kwargs.get("validate_only", False))
