"""A client's TLS settings: what they are taken from, and that whatever cannot be used is an error that names them."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest

from modeaware.errors import ConfigError
from modeaware.wire.client_tls import ssl_context
from modeaware.wire.probe import Round
from tests.support.secured import Certificate, make_certificate


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def no_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", fail)


def test_a_comment_in_another_script_does_no_harm(certificate: Certificate) -> None:
    pem = f"# Zertifikat für Kafka\n{certificate.certificate.read_text()}"
    assert ssl_context({"ssl.ca.pem": pem}).cert_store_stats()["x509"] == 1


def test_files_need_no_other_files(certificate: Certificate, no_temporary_files: None) -> None:
    conf = {"ssl.ca.location": str(certificate.certificate), "ssl.certificate.location": str(certificate.certificate)}
    ssl_context({**conf, "ssl.key.location": str(certificate.key)})


def test_strings_do_and_it_is_said_where_there_can_be_none(certificate: Certificate, no_temporary_files: None) -> None:
    conf = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "ssl",
        "ssl.ca.location": str(certificate.certificate),
        "ssl.certificate.pem": certificate.certificate.read_text(),
        "ssl.key.pem": certificate.key.read_text(),
    }
    with pytest.raises(ConfigError, match=r"ssl\.certificate.*No usable temporary directory"):
        ssl_context(conf)
    assert "No usable temporary directory" in str(Round(conf).failure())


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


def test_what_python_does_not_take_is_named_too(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise TypeError("cadata should be an ASCII string")

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", fail)
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location cannot be used: cadata"):
        ssl_context({"ssl.ca.pem": certificate.certificate.read_text()})
