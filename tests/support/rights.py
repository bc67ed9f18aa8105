"""A Kafka with users and ACLs, and the rights that the documents name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.plain import TIMEOUT_S
from tests.support.waiting import eventually

DOCUMENT = Path(__file__).parents[2] / "docs" / "permissions.md"
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.BROKER,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
}
"""Kinds of resources as the tables call them."""

Right = tuple[ResourceType, str | None, AclOperation]
"""Kind of resource, its name, what may be done with it."""


def documented(who: str, names: Mapping[str, Sequence[str]]) -> set[Right]:
    """The rights that the table after the bold ``who`` gives, with each of ``names`` in the place of placeholders."""
    (_, section) = DOCUMENT.read_text(encoding="utf-8").split("\n## Rights\n")
    (_, after) = section.partition("\n## ")[0].split(f"**{who}**")
    rights = {right for row in _rows(after) for right in _rights(row, names)}
    assert rights, f"the table of {who} is empty"
    return rights


def _rows(text: str) -> Iterator[list[str]]:
    lines = text.partition("\n| resource |")[2].splitlines()[2:]
    for line in takewhile(lambda line: line.startswith("|"), lines):
        yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def _rights(row: list[str], names: Mapping[str, Sequence[str]]) -> Iterator[Right]:
    kind, placeholder, operations, _ = row
    for name in names.get(placeholder, [placeholder]):
        for operation in operations.split(", "):
            yield KINDS[kind], name, AclOperation[operation]


class Acls:
    """Grants rights, and returns when the broker applies them; ``login``: the administrator's settings."""

    def __init__(self, bootstrap_servers: str, login: Mapping[str, str]) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, **login})

    def grant(self, who: str, rights: set[Right]) -> None:
        bindings = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{who}", "*", operation, AclPermissionType.ALLOW)
            for kind, name, operation in sorted(rights, key=str)
        ]
        for future in self._admin.create_acls(bindings).values() if bindings else ():
            future.result(TIMEOUT_S)
        eventually(lambda: rights <= self.of(who))

    def clear(self, who: str | None = None, right: Right = (ResourceType.ANY, None, AclOperation.ANY)) -> None:
        """Take one right of a user away, or all rights of all users."""
        wanted = self._filter(who, *right)
        for future in self._admin.delete_acls([wanted]).values():
            future.result(TIMEOUT_S)
        eventually(lambda: not self._admin.describe_acls(wanted).result(TIMEOUT_S))

    def of(self, who: str) -> set[Right]:
        everything = self._filter(who, ResourceType.ANY, None, AclOperation.ANY)
        bindings = self._admin.describe_acls(everything).result(TIMEOUT_S)
        return {(binding.restype, binding.name, binding.operation) for binding in bindings}

    @staticmethod
    def _filter(who: str | None, kind: ResourceType, name: str | None, operation: AclOperation) -> AclBindingFilter:
        principal: Any = who and f"User:{who}"
        anything: Any = None  # the stub does not know that None is "any"
        pattern = ResourcePatternType.ANY
        return AclBindingFilter(kind, name, pattern, principal, anything, operation, AclPermissionType.ANY)
