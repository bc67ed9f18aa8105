"""The options of ``modeaware plan``."""

from __future__ import annotations

import pytest

from modeaware import cli


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--partitions", "0"), "0 is below 1"),
        (("--partitions", "100001"), "100001 is more than 100000"),
        (("--partitions", "few"), "'few' is not a whole number"),
        (("--partitions", "4", "--sample", "0"), "0 is below 1"),
        (("--partitions", "4", "--sample", "1000001"), "1000001 is more than 1000000"),
        ((), "required: --partitions"),
    ],
)
def test_bad_usage_is_said_before_anything_is_asked(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], error: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["plan", "--bootstrap-server", "nowhere:1", "--topic", "orders", *options])
    assert caught.value.code == 2
    assert error in capsys.readouterr().err
