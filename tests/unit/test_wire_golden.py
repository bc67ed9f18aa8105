"""Messages of KIP-694, of ours and of Kafka, byte for byte and both ways.

The frames of ``tests/data/wire-frames.jsonl`` were put together by hand, line by line of the KIP's layout where it has
one, and of Kafka's protocol guide. A new version of a message adds frames and leaves those that are there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from modeaware.wire import codec

DATA = Path(__file__).parents[1] / "data" / "wire-frames.jsonl"
FRAMES: list[dict[str, Any]] = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame["name"])
def test_fields_and_bytes_become_each_other(frame: dict[str, Any]) -> None:
    data, version, fields = bytes.fromhex(frame["hex"]), frame["version"], frame["fields"]
    if frame["kind"] == "request":
        header, message = codec.decode_request(data)
        assert (header.api_key, header.api_version, header.correlation_id) == (frame["key"], version, 7)
        encoded = codec.encode_request(message, version, 7, header.client_id)
    else:
        correlation_id, message = codec.decode_response(data, frame["key"], version)
        assert correlation_id == 7
        encoded = codec.encode_response(message, version, 7)
    assert json.loads(json.dumps(message.to_dict(), default=str)) == fields
    assert encoded == data


def test_every_version_of_every_api_that_is_spoken_has_a_frame() -> None:
    told = {(frame["key"], frame["version"]) for frame in FRAMES}
    assert told >= {(key, v) for key, (low, high) in codec.VERSIONS.items() for v in range(low, high + 1)}
