"""Records and journals of chaos runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.journal import Journal, Kind, pack_bounds, read_journal, unpack_bounds
from tests.chaos.record import Identity, key_bytes, number_of, value_bytes, version_number


def test_an_identity_survives_a_record_and_a_journal(tmp_path: Path) -> None:
    identity = Identity(run=32_767, key=65_535, sequence=(1 << 32) - 1)
    assert Identity.of(identity.number) == identity
    value = value_bytes(identity.number, version_number((3, 7)))
    assert number_of(value, key_bytes(identity.key)) == identity.number
    journal = Journal(tmp_path / "x")
    journal.add(Kind.ACKED, number=identity.number, offset=(1 << 32) - 1, at_ms=77, partition=255)
    journal.add(Kind.ENDED)
    journal.close()
    entries = list(read_journal(tmp_path / "x"))
    assert entries == [(identity.number, (1 << 32) - 1, 77, 255, Kind.ACKED), (0, 0, 0, 0, Kind.ENDED)]


def test_an_entry_torn_by_a_kill_is_left_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "x")
    for offset in range(3):
        journal.add(Kind.READ, number=1, offset=offset)
    journal.flush()
    whole = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(whole[:-5])
    assert [offset for _, offset, *_ in read_journal(tmp_path / "x")] == [0, 1]


@pytest.mark.parametrize("value", [None, b"", b"mwch", b"x" * 100])
def test_a_record_of_somebody_else_is_refused(value: bytes | None) -> None:
    with pytest.raises(ValueError, match="not a record of this run"):
        number_of(value, b"key-00000")


def test_a_record_with_another_key_is_refused() -> None:
    with pytest.raises(ValueError, match="came with the key"):
        number_of(value_bytes(Identity(1, 2, 3).number, -1), key_bytes(3))


def test_versions_are_ordered_as_views_are() -> None:
    versions = [(-1, -1), (0, 0), (0, 3), (1, 2), (4000, 900_000)]
    numbers = [version_number(version) for version in versions]
    assert numbers == sorted(set(numbers))
    assert [unpack_bounds(pack_bounds(-1, number)) for number in numbers] == [(-1, number) for number in numbers]
