"""A Kafka with SASL_SSL, users and ACLs: a certificate made by openssl, SCRAM, PLAIN and OAUTHBEARER (unsecured)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from modeaware.local import LocalKafka

ADMIN = "admin"
"""A super user, of every mechanism."""
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
USERS = (
    *("alice", "bob", "mallory", "controller", "operator", "client", "creator", "managed", "describer", "nobody"),
    *("replacer", "requester"),
)
"""Users by SCRAM and PLAIN. A test grants what it needs and takes it away again: :meth:`tests.support.rights.Acls`."""
LACKING = tuple(f"lacking-{number}" for number in range(40))
"""More users, by PLAIN alone."""
SESSION_MS = 3_000
"""How long clients of :data:`SHORT` may go on before they authenticate anew (KIP-368)."""
SHORT = ("OAUTHBEARER", "SCRAM-SHA-512")
_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Certificate:
    """PEM files of a certificate for ``localhost`` and ``127.0.0.1`` that is its own authority.

    Attributes:
        certificate, key: apart.
        both: the key and the certificate in one file, as brokers want it.
    """

    certificate: Path
    key: Path
    both: Path


@dataclass(frozen=True)
class SecuredKafka:
    """A running one-node cluster that asks who connects."""

    kafka: LocalKafka
    certificate: Certificate

    @property
    def bootstrap_servers(self) -> str:
        return self.kafka.bootstrap_servers

    def conf(self, user: str = ADMIN, mechanism: str = "SCRAM-SHA-256", servers: str = "") -> dict[str, str]:
        """librdkafka's settings of a user; ``servers``: others than the brokers."""
        return {"bootstrap.servers": servers or self.bootstrap_servers, **login(self.certificate, user, mechanism)}


def login(certificate: Certificate, user: str, mechanism: str, password: str | None = None) -> dict[str, str]:
    """librdkafka's settings of a user, without servers."""
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificate.certificate),
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        unsecured = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={user}"}
        return {**settings, **unsecured}
    return {**settings, "sasl.username": user, "sasl.password": secret(user) if password is None else password}


def secret(user: str) -> str:
    """The password of a user."""
    return f"secret-of-{user}"


def make_certificate(folder: Path) -> Certificate:
    """Make one with openssl."""
    made = Certificate(folder / "certificate.pem", folder / "key.pem", folder / "both.pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(made.key), "-out", str(made.certificate)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    made.both.write_text(made.key.read_text() + made.certificate.read_text())
    return made


def secured_kafka(folder: Path, configs: Mapping[str, str]) -> SecuredKafka:
    """One that is not started yet; ``configs``: more broker settings. Users log in with :func:`secret`."""
    certificate = make_certificate(folder)
    scram = [
        argument
        for user in (ADMIN, *USERS)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for argument in ("--add-scram", f"{mechanism}=[name={user},password={secret(user)}]")
    ]
    client_config = login(certificate, ADMIN, "SCRAM-SHA-256")
    all_configs = {**_configs(certificate, (ADMIN, *USERS, *LACKING)), **configs}
    kafka = LocalKafka(1, configs=all_configs, client_config=client_config, format_args=scram)
    return SecuredKafka(kafka, certificate)


def _configs(certificate: Certificate, users: tuple[str, ...]) -> dict[str, str]:
    own, listener = f'username="{ADMIN}" password="{secret(ADMIN)}"', "listener.name.sasl_ssl."
    logins = "".join(f' user_{user}="{secret(user)}"' for user in users)
    return {
        "listeners": "SASL_SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": "SASL_SSL://127.0.0.1:{port}",
        "inter.broker.listener.name": "SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate.certificate),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{listener}plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {own}{logins};",
        **{
            f"{listener}{scram}.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;"
            for scram in ("scram-sha-256", "scram-sha-512")
        },
        f"{listener}oauthbearer.sasl.jaas.config": (
            f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{ADMIN}";'
        ),
        **{f"{listener}{name.lower()}.connections.max.reauth.ms": str(SESSION_MS) for name in SHORT},
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
    }
