"""Controllers with TLS endpoints before a broker that asks who connects, its users, and a client of raw frames."""

from __future__ import annotations

import ssl
import time
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

from modeaware import AdminClient as OurAdminClient
from modeaware.config import ControllerConfig
from modeaware.confluent.controller_calls import DeletePartitions
from modeaware.controller.daemon import Controller
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import TopicRecord
from tests.support.plain import create_topic
from tests.support.raw_client import RawClient, token
from tests.support.rights import Acls
from tests.support.secured import SecuredKafka, login

OWNER, OTHER, NOBODY = "alice", "bob", "mallory"
"""NOBODY has no right at all; the others have what a test grants them, on topics of the test."""
WIDE = (ResourceType.TOPIC, "*"), (ResourceType.GROUP, "*"), (ResourceType.BROKER, "kafka-cluster")
MODE_LOG = "__partition_modes"
PATIENT_MS = 600_000
"""A topic's record stays as it was after a shrink."""


class Guarded:
    """The secured broker of the run, its users, topics and controllers."""

    def __init__(self, secured: SecuredKafka, folder: Path) -> None:
        self.secured = secured
        self.servers = secured.bootstrap_servers
        self.conf = secured.conf()
        self.admin = AdminClient(self.conf)
        self._acls = Acls(self.servers, self.conf)
        self._folder = folder

    def controller(self, mode_log: str = MODE_LOG, **config: Any) -> Controller:
        """Made, with an endpoint that speaks TLS; its user is the super user."""
        files = self.secured.certificate
        settings = ControllerConfig(**{"seal_quiet_ms": PATIENT_MS, "mode_log_topic": mode_log, **config})
        return Controller(self.conf, settings, tls_certificate=str(files.certificate), tls_key=str(files.key))

    def topic(self, partitions: int = 4) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        create_topic(self.servers, name, partitions, configs={}, **self.conf)
        return name

    def client(
        self, user: str, mechanism: str = "PLAIN", servers: str | None = None, **settings: Any
    ) -> dict[str, Any]:
        """Settings of an AdminClient of ours; ``servers``: others than the brokers."""
        conf: dict[str, Any] = {
            "bootstrap.servers": servers or self.servers,
            "log_level": 0,
            **login(self.secured.certificate, user, mechanism, settings.pop("password", None)),
            **settings,
        }
        if mechanism == "OAUTHBEARER":
            del conf["enable.sasl.oauthbearer.unsecure.jwt"]
            conf["oauth_cb"] = lambda _: (token(user), time.time() + 3600)
        return conf

    def shrink(
        self, conf: dict[str, Any], topic: str, count: int, timeout_s: float = 60, *, delay_ms: int | None = None
    ) -> None:
        """By an AdminClient of ours."""
        asked = {topic: DeletePartitions(count)}
        with OurAdminClient(conf) as admin:
            admin.delete_partitions(asked, delay_ms=delay_ms, request_timeout=timeout_s)[topic].result()

    def writable(self, topic: str) -> int | None:
        """How many of its partitions are, by the mode log; None: it says nothing of the topic."""
        record = self.record(topic)
        return None if record is None else record.writable_count

    def properties(self, user: str, mechanism: str = "SCRAM-SHA-256") -> str:
        """A file for ``--command-config``."""
        path = self._folder / f"{user}-{mechanism}.properties"
        settings = login(self.secured.certificate, user, mechanism)
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)

    def record(self, topic: str) -> TopicRecord | None:
        """What the mode log says of it now."""
        return read_mode_log(self.conf, MODE_LOG, 20).record(topic)

    def raw(self, address: str) -> RawClient:
        return RawClient(address, ssl.create_default_context(cafile=str(self.secured.certificate.certificate)))

    # Rights

    def grant(self, user: str, name: str, *operations: AclOperation, kind: ResourceType = ResourceType.TOPIC) -> None:
        """Returns when the broker goes by it."""
        self._acls.grant(user, {(kind, name, operation) for operation in operations})

    def take(self, user: str, name: str, operation: AclOperation, kind: ResourceType = ResourceType.TOPIC) -> None:
        """Take one right away."""
        self._acls.clear(user, (kind, name, operation))


def address_of(controller: Controller) -> str:
    """Where its endpoint listens."""
    assert controller.address is not None
    return controller.address
