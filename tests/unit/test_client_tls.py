"""A client's TLS settings: what they are taken from, and that whatever cannot be used is an error that names them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from modeaware.errors import ConfigError
from modeaware.wire.client_tls import ssl_context
from tests.support.secured import Certificate, make_certificate


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_a_comment_in_another_script_does_no_harm(certificate: Certificate) -> None:
    pem = f"# Zertifikat für Kafka\n{certificate.certificate.read_text()}"
    assert ssl_context({"ssl.ca.pem": pem}).cert_store_stats()["x509"] == 1


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
