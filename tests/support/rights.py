"""A Kafka with users and ACLs, and the rights that the documents name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

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
_ADMIN = "admin"

Right = tuple[ResourceType, str, AclOperation]
"""Kind of resource, its name, what may be done with it."""


def user(name: str) -> dict[str, str]:
    """librdkafka's settings of a user of :func:`secured`."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": f"secret of {name}",
    }


def secured(*names: str) -> dict[str, str]:
    """Broker settings: nobody but ``admin`` may do anything that no ACL allows."""
    logins = "".join(f' user_{name}="secret of {name}"' for name in (_ADMIN, *names))
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": "SASL_PLAINTEXT://127.0.0.1:{port}",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{_ADMIN}" password="secret of {_ADMIN}"{logins};'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{_ADMIN};User:ANONYMOUS",
    }


def documented(who: str, names: Mapping[str, Sequence[str]]) -> set[Right]:
    """The rights that the table after the bold ``who`` gives, with each of ``names`` in the place of placeholders."""
    (_, section) = DOCUMENT.read_text(encoding="utf-8").split("\n## Rights\n")
    (_, after) = section.partition("\n## ")[0].split(f"**{who}**")
    rights = {right for row in _rows(after) for right in _rights(row, names)}
    assert rights, f"the table of {who} is empty"
    return rights


def _rows(text: str) -> Iterator[list[str]]:
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("| resource |"):
            next(lines)
            break
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def _rights(row: list[str], names: Mapping[str, Sequence[str]]) -> Iterator[Right]:
    kind, placeholder, operations, _ = row
    for name in names.get(placeholder, [placeholder]):
        for operation in operations.split(", "):
            yield KINDS[kind], name, AclOperation[operation]


class Acls:
    """Grants rights, and returns when the broker goes by them; ``login``: the administrator's settings."""

    def __init__(self, bootstrap_servers: str, login: Mapping[str, str] | None = None) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, **(login or user(_ADMIN))})

    def grant(self, who: str, rights: set[Right]) -> None:
        bindings = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{who}", "*", operation, AclPermissionType.ALLOW)
            for kind, name, operation in sorted(rights, key=str)
        ]
        for future in self._admin.create_acls(bindings).values():
            future.result(TIMEOUT_S)
        eventually(lambda: rights <= self.of(who))

    def of(self, who: str) -> set[Right]:
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]  # the stub does not know that None is "any"
            ResourcePatternType.ANY,
            f"User:{who}",
            None,  # type: ignore[arg-type]  # as above
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        bindings = self._admin.describe_acls(everything).result(TIMEOUT_S)
        return {(binding.restype, binding.name, binding.operation) for binding in bindings}
