"""What the JVM's reader of the mode log checks is what the dataclasses of the records declare."""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import pytest

from modeaware.modelog.json_form import JsonFields, integer, optional_int, optional_text, text, texts
from modeaware.modelog.records import (
    ClaimRecord,
    DeleteTopicPartitions,
    OpeningPartition,
    Replacement,
    RetiredPartition,
    Straggler,
    TopicRecord,
)

FORMS: dict[str, Any] = json.loads(
    Path(__file__).parents[2].joinpath("java", "modeaware", "records.json").read_text(encoding="ascii")
)
BY_READER: dict[Any, tuple[Any, bool]] = {
    integer: ("int", False),
    optional_int: ("int", True),
    text: ("text", False),
    optional_text: ("text", True),
    texts: (["text"], False),
    bool: ("any", False),
}
"""The form of a field, and whether it may be null, by the function that reads it."""


def parts(form: dict[str, Any], name: str) -> dict[str, Any]:
    """The forms of the object, or of the rows, under ``name``."""
    [inner] = (inner for mark, inner in form.items() if mark.rstrip("!?") == name)
    return dict(inner.get("#", inner))


TOPIC = FORMS["topic"]


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        (ClaimRecord, FORMS["claim"]),
        (TopicRecord, TOPIC),
        (DeleteTopicPartitions, parts(TOPIC, "deletion")),
        (OpeningPartition, parts(TOPIC, "opening")),
        (Replacement, parts(TOPIC, "replacement")),
        (RetiredPartition, parts(TOPIC, "retired")),
        (Straggler, parts(parts(TOPIC, "retired"), "straggler")),
    ],
)
def test_each_field_has_the_form_that_python_reads(kind: type[JsonFields], form: dict[str, Any]) -> None:
    marks = {mark.rstrip("!?"): mark for mark in form}
    declared: tuple[Field[Any], ...] = fields(kind)  # type: ignore[arg-type]  # each of them is a dataclass
    assert marks.keys() == {each.metadata["key"] or each.name for each in declared}
    is_row = kind in (OpeningPartition, RetiredPartition)  # null in a column is a field at its default
    for each in declared:
        mark = marks[each.metadata["key"] or each.name]
        has_default = each.default is not MISSING or each.default_factory is not MISSING
        assert ("!" in mark) == (each.metadata["required"] or not has_default), mark
        if (known := BY_READER.get(each.metadata["read"])) is not None:
            assert (form[mark], "?" in mark or is_row) == (known[0], known[1] or is_row), mark
