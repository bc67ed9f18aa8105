"""``oauth_cb=package.module:name`` in files and in configuration dicts: found, or a clear error."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider

import modeaware
from modeaware.cli import session
from modeaware.config import named_function, split_client_config
from modeaware.errors import ConfigError
from modeaware.wire.transport import OauthCallback, kafka_python_settings

NAME = "modeaware_test_tokens:Source.token"
BEARER = {"bootstrap.servers": "kafka:9092", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


@pytest.fixture(autouse=True)
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the application."""
    (tmp_path / "modeaware_test_tokens.py").write_text(
        "NUMBER = 5\n"
        "class Source:\n"
        "    @staticmethod\n"
        "    def token(config):\n"
        "        return f'token for {config}', 4102444800.0, 'me', {'a': 'b'}\n"
    )
    (tmp_path / "modeaware_test_broken.py").write_text("import modeaware_test_absent\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_file_of_settings_names_it_for_both_libraries(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    lines = {**BEARER, "oauth_cb": NAME, "sasl.oauthbearer.config": "x=1"}
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    parser = argparse.ArgumentParser()
    session.add_connection_options(parser)
    args = parser.parse_args(["--bootstrap-server", "kafka:9092", "--command-config", str(file)])
    conf = session.connection(args).conf
    assert conf["oauth_cb"]("x=1")[0] == "token for x=1"
    provider = kafka_python_settings(conf)["sasl_oauth_token_provider"]
    assert isinstance(provider, AbstractTokenProvider)
    assert (provider.token(), provider.extensions()) == ("token for x=1", {"a": "b"})
    assert kafka_python_settings({**BEARER, "oauth_cb": NAME})["sasl_oauth_token_provider"].token() == "token for "


def test_a_configuration_dict_may_name_it() -> None:
    _, rest = split_client_config({**BEARER, "oauth_cb": NAME})
    assert rest["oauth_cb"] is split_client_config({"oauth_cb": NAME})[1]["oauth_cb"], "clients share their views by it"
    assert split_client_config({"oauth_cb": len})[1]["oauth_cb"] is len
    with pytest.raises(ConfigError, match=r"oauth_cb: cannot import 'modeaware_test_absent'"):
        modeaware.Producer({**BEARER, "oauth_cb": "modeaware_test_absent:token"})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tokens", r"'tokens' is not package\.module:name of a function"),
        ("modeaware_test_absent:token", r"cannot import .*: there is no such module: install it, or .* PYTHONPATH"),
        ("modeaware_test_broken:token", r"cannot import .*ModuleNotFoundError\(.*modeaware_test_absent"),
        ("modeaware_test_tokens:absent", r"the module 'modeaware_test_tokens' has no 'absent'"),
        ("modeaware_test_tokens:NUMBER", r"is no function: its type is int$"),
    ],
)
def test_what_cannot_be_is_told(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as raised:
        named_function("oauth_cb", name)
    assert str(raised.value).startswith("oauth_cb: ")


@pytest.mark.parametrize("answer", ["secret-token", None, ("secret-token",)])
def test_what_is_no_token_with_its_expiry_is_refused_and_not_told(answer: object) -> None:
    provider = OauthCallback(lambda _: answer, "")
    with pytest.raises(SaslAuthenticationFailedError, match=r"must return \(token, expiry in seconds\), not") as raised:
        provider.token()
    assert "secret" not in str(raised.value)
