"""The connection to all brokers, as far as it goes without one, and its settings."""

from __future__ import annotations

import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import SaslAuthenticationFailedError
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from modeaware.errors import ClusterError, ConfigError, ErrorCode
from modeaware.wire import requests, transport
from modeaware.wire.brokers import REQUEST_TIMEOUT_S, SILENT_FOR_S, SILENT_TIMEOUT_S, Brokers, SilentBrokers
from modeaware.wire.security import split_address, ssl_context
from modeaware.wire.transport import kafka_python_settings
from tests.support.endpoint import free_port
from tests.support.secured import Certificate


@pytest.mark.filterwarnings("error")
def test_nobody_answers() -> None:
    brokers = Brokers({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, timeout_s=0.3)
    for _ in range(2):
        with pytest.raises(ClusterError) as raised:
            brokers.node_ids()
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
    brokers.close()
    brokers.close()
    with pytest.raises(ClusterError, match="closed"):
        brokers.ask(requests.ListGroupsRequest())


def test_bootstrap_servers_are_tried_in_turn() -> None:
    """A server that never answers is not tried again before the others."""
    link = transport.KafkaLink(kafka_python_settings({"bootstrap.servers": "a:1,b:2,c:3"}))
    tried = [link.manager.cluster.bootstrap_brokers() for _ in range(6)]
    link.close()
    assert {broker.host for (broker,) in tried[:3]} == {"a", "b", "c"}
    assert tried[3:] == tried[:3]


class TestSilentBrokers:
    """A broker that hangs holds up one call; then it is asked briefly, until it answers or some time has passed."""

    def setup_method(self) -> None:
        self.now_s = 100.0
        self.silent = SilentBrokers(lambda: self.now_s)

    def waited_s(self, node_id: int = 1) -> float:
        return self.silent.until_s(node_id, self.now_s + REQUEST_TIMEOUT_S) - self.now_s

    def let_it_run_out(self) -> None:
        until_s = self.now_s + self.waited_s()
        self.now_s = until_s
        self.silent.failed(1, until_s)

    def test_the_first_silence_costs_the_whole_time_and_the_next_ones_little(self) -> None:
        assert self.waited_s() == REQUEST_TIMEOUT_S
        for _ in range(3):
            self.let_it_run_out()
            assert self.waited_s() == pytest.approx(SILENT_TIMEOUT_S)
            assert self.waited_s(2) == REQUEST_TIMEOUT_S

    def test_a_slow_one_is_given_the_whole_time_now_and_then(self) -> None:
        self.let_it_run_out()
        self.let_it_run_out()
        self.now_s += SILENT_FOR_S - SILENT_TIMEOUT_S - 0.01
        assert self.waited_s() == pytest.approx(SILENT_TIMEOUT_S)
        self.now_s += 0.02
        assert self.waited_s() == REQUEST_TIMEOUT_S
        self.let_it_run_out()
        assert self.waited_s() == pytest.approx(SILENT_TIMEOUT_S)


class TestEmbeddedProtocol:
    """What members of classic groups keep in the opaque bytes."""

    @pytest.mark.parametrize("version", [0, 1, 2, 3])
    def test_topics(self, version: int) -> None:
        subscription = ConsumerProtocolSubscription(version=version, topics=["a", "b"], user_data=b"x").encode()
        assert requests.subscribed_topics(subscription) == {"a", "b"}
        part = ConsumerProtocolAssignment.TopicPartition
        parts = [part(topic="a", partitions=[1]), part(topic="none", partitions=[])]
        assignment = ConsumerProtocolAssignment(version=version, assigned_partitions=parts, user_data=None).encode()
        assert requests.assigned_partitions(assignment) == {("a", 1)}
        assert requests.subscribed_topics(b"") == requests.assigned_partitions(b"") == frozenset()


SERVERS = {"bootstrap.servers": "a:1, PLAINTEXT://b:2"}
SASL = {**SERVERS, "security.protocol": "sasl_plaintext"}
SSL = {**SERVERS, "security.protocol": "SSL"}
USER = {"sasl.username": "alice", "sasl.password": "secret"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "scram-sha-512"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_user_and_a_password(name: str, mechanism: str) -> None:
    settings = kafka_python_settings({**SASL, **USER, name: mechanism})
    assert settings["security_protocol"] == "SASL_PLAINTEXT"
    assert settings["sasl_mechanism"] == mechanism.upper()
    assert (settings["sasl_plain_username"], settings["sasl_plain_password"]) == ("alice", "secret")
    assert set(settings) <= set(KafkaConnectionManager.DEFAULT_CONFIG)


@pytest.mark.parametrize("failure", [RuntimeError("the token server is away"), KeyError("token")])
def test_a_callback_that_fails_is_a_broker_that_does_not_let_us_in(failure: Exception) -> None:
    """Whatever it raises: later it may succeed."""

    def oauth_cb(config: str) -> tuple[str, float]:
        raise failure

    conf = {**SASL, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": oauth_cb}
    provider = kafka_python_settings(conf)["sasl_oauth_token_provider"]
    with pytest.raises(SaslAuthenticationFailedError, match=f"oauth_cb failed: {type(failure).__name__}") as raised:
        provider.token()
    assert raised.value.__cause__ is failure


def test_certificates_and_host_names_are_checked_unless_configured_otherwise(certificate: Certificate) -> None:
    context = kafka_python_settings(SSL)["ssl_context"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    unchecked = ssl_context({"enable.ssl.certificate.verification": "false"})
    assert (unchecked.verify_mode, unchecked.check_hostname) == (ssl.CERT_NONE, False)
    pem, cipher = str(certificate.certificate), "ECDHE-RSA-AES256-GCM-SHA384"
    folder = {"ssl.ca.location": str(certificate.certificate.parent), "ssl.cipher.suites": cipher}
    context = ssl_context({**folder, "ssl.crl.location": pem})
    assert context.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
    assert cipher in {each["name"] for each in context.get_ciphers()}


def test_addresses_family_and_kerberos_service_are_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (split_address("[::1]", 9092), split_address("b:1", 9092)) == (("::1", 9092), ("b", 1))
    assert kafka_python_settings({**SERVERS, "broker.address.family": "V4"})["proxy_url"].endswith("v4")
    monkeypatch.setattr(transport, "find_spec", lambda name: name)
    gssapi = {**SASL, "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "broker"}
    assert kafka_python_settings(gssapi)["sasl_kerberos_service_name"] == "broker"


def test_key_may_be_locked_and_a_comment_be_in_another_script(certificate: Certificate, tmp_path: Path) -> None:
    locked = tmp_path / "locked.pem"
    command = ["openssl", "rsa", "-aes128", "-passout", "pass:secret", "-in", str(certificate.key), "-out", str(locked)]
    subprocess.run(command, check=True, capture_output=True)
    files = {"ssl.certificate.location": str(certificate.certificate), "ssl.key.location": str(locked)}
    pem = f"# Zertifikat für Kafka\n{certificate.certificate.read_text()}"
    context = ssl_context({**files, "ssl.key.password": "secret", "ssl.ca.pem": pem})
    assert context.cert_store_stats()["x509"] == 1


def test_strings_are_gone_from_the_disk_at_once(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []
    real = tempfile.TemporaryDirectory

    def make(*arguments: Any, **named: Any) -> tempfile.TemporaryDirectory[str]:
        made = real(*arguments, **named)
        folders.append(Path(made.name))
        return made

    monkeypatch.setattr(tempfile, "TemporaryDirectory", make)
    certificate_pem, key_pem = certificate.certificate.read_text(), certificate.key.read_text()
    ssl_context({"ssl.certificate.pem": certificate_pem, "ssl.key.pem": key_pem})
    with pytest.raises(ConfigError, match=r"ssl\.certificate"):
        ssl_context({"ssl.certificate.pem": certificate_pem, "ssl.key.pem": "rubbish"})
    assert len(folders) == 4
    assert not any(folder.exists() for folder in folders)


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        ({}, "bootstrap.servers"),
        ({**SERVERS, "security.protocol": "TLS"}, "security.protocol"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "alice"}, "sasl.password"),
        ({**SASL, "sasl.mechanism": "DIGEST"}, "'DIGEST' is not one of"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "oauth_cb"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}, "sasl.oauthbearer.method"),
        ({**SASL, **USER, "sasl.mechanism": "PLAIN", "sasl.kerberos.keytab": "x"}, "sasl.kerberos.keytab"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "gssapi"),
        ({**SSL, "ssl.keystore.location": "x.p12"}, "ssl.keystore.location"),
        ({**SSL, "ssl.ca.location": "nowhere.pem"}, "ssl.ca.location"),
        ({**SSL, "ssl.key.location": "x"}, "ssl.certificate.location"),
        ({**SERVERS, "enable.sasl.oauthbearer.unsecure.jwt": True}, "enable.sasl.oauthbearer.unsecure.jwt"),
    ],
)
def test_what_cannot_be_translated_is_named(conf: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as raised:
        kafka_python_settings(conf)
    assert named in str(raised.value)
