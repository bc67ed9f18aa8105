"""One serialiser of reports for every ``--json``, and the help text about the JSON. Both follow the dataclasses.

The JSON object of a report has the report's fields, and the properties that ``json_also`` names. If a JSON
key is not a valid Python name (``from``), the field has ``metadata={"json": "from"}``. JSON omits a field with
``metadata={"json": None}``.
``json_only`` (JSON key -> attribute, which may be dotted) replaces these rules. The meaning of a field is documented
once, under ``Attributes:`` in the docstring of its class. ``to_json`` is a single-dispatch function: this module
registers the classes of other layers whose JSON form differs from their fields.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import singledispatch
from operator import attrgetter
from textwrap import TextWrapper
from typing import Any, ClassVar, get_args, get_type_hints

from modeaware.modelog.records import Straggler
from modeaware.modes import PartitionMode

SCHEMA_VERSION = 1
"""The version of all ``--json`` output. It rises when a key is removed or changes its meaning, not for a new key."""
_WIDTH = 118
_ROLE = re.compile(r":\w+:(?=`)")
_ATTRIBUTE = re.compile(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", re.MULTILINE)


@singledispatch
def to_json(value: Any) -> Any:
    """Return a report, or a part of one, in the types of JSON."""
    if is_dataclass(value):
        return {key: to_json(attrgetter(name)(value)) for key, name in json_names(type(value)).items()}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [to_json(item) for item in (sorted(value) if isinstance(value, frozenset) else value)]
    return value


def json_text(report: Any) -> str:
    """Return the text that ``--json`` prints for a report: ``schema_version``, then the report."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **to_json(report)}, indent=2)


@to_json.register
def _(value: Enum) -> Any:
    return value.label if isinstance(value, PartitionMode) else value.value


@to_json.register
def _(straggler: Straggler) -> dict[str, int | None]:
    return {f.name: None if (n := getattr(straggler, f.name)) < 0 else int(n) for f in fields(straggler)}


def json_names(report: type) -> dict[str, str]:
    """Return JSON key -> name of the attribute, for each key of the report's JSON object."""
    if (only := getattr(report, "json_only", None)) is not None:
        return dict(only)
    names = {f.metadata.get("json", f.name): f.name for f in fields(report)} | {
        n: n for n in getattr(report, "json_also", ())
    }
    return {key: name for key, name in names.items() if key is not None}


def json_help(report: type, head: str = "--json prints one object:") -> str:
    """Return the documentation of a report's JSON object: each key with its text from the docstring of its class."""
    version = f"  schema_version: {SCHEMA_VERSION}; it rises when a key is removed or changes its meaning"
    foot = "Times are in ms since 1970. Null: does not apply, or is not known. Fields may be added."
    return "\n".join([head, version, *_help_lines(report, "  ", {}), foot, ""])


def _help_lines(report: type, indent: str, documented: dict[type, str]) -> Iterator[str]:
    meanings = {
        name: " ".join(_ROLE.sub("", text).replace("`", "").split())
        for kind in reversed(report.__mro__)
        for names, text in _ATTRIBUTE.findall(inspect.getdoc(kind) or "")
        for name in names.split(", ")
    }
    hints, names = get_type_hints(report), json_names(report)
    constants = {key: getattr(report, name) for key, name in names.items() if hints.get(name) is ClassVar}
    # Constants come first: they name the kind of report.
    for key, name in sorted(names.items(), key=lambda item: item[0] not in constants):
        computed = getattr(report, name, None)  # a property, or the default of a field
        hint = get_type_hints(computed.fget)["return"] if isinstance(computed, property) else hints.get(name)
        parts = _reports_in(hint)
        texts = [meanings[name]] if name in meanings else [str(constants[key])] if key in constants else []
        texts += [f"Its fields are those of {documented[part]}." for part in parts if part in documented]
        text = f"{key}: {' '.join(texts)}" if texts else key
        yield from TextWrapper(_WIDTH, initial_indent=indent, subsequent_indent=indent + "    ").wrap(text)
        for part in parts:
            if part not in documented:
                documented[part] = key
                yield from _help_lines(part, indent + "  ", documented)


def _reports_in(hint: Any) -> list[type]:
    """Return the dataclasses that a type consists of: ``X | Y | None``, ``tuple[X, ...]``, ``Mapping[str, X]``."""
    if isinstance(hint, type) and is_dataclass(hint):
        return [hint]
    return [report for part in get_args(hint) for report in _reports_in(part)]
