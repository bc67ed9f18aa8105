"""ApiVersions as the endpoint answers it: the broker's own answer, but for what the endpoint does itself."""

from __future__ import annotations

from dataclasses import dataclass

from modeaware.endpoint.metadata import Answers
from modeaware.errors import ErrorCode
from modeaware.wire import codec, stock
from modeaware.wire.api_versions import CLIENT_NAME, UNDERLYING_NAME
from modeaware.wire.client import identity
from modeaware.wire.kip694 import FEATURE, MODES_VERSION

DESCRIBE_TOPIC_PARTITIONS_KEY = 75
_NEWEST = stock.SUPPORTED_VERSIONS[stock.API_VERSIONS_KEY][1]
_METADATA = stock.SUPPORTED_VERSIONS[stock.METADATA_KEY]
OURS = {
    key: codec.SUPPORTED_VERSIONS[key]
    for key in (codec.CREATE_PARTITIONS_KEY, codec.DELETE_PARTITIONS_KEY, codec.ALTER_GROUP_RULES_KEY)
}
"""What the endpoint answers itself, whatever the broker speaks: api key -> (lowest, highest version)."""
_FEATURES_SINCE = 3
_LIBRDKAFKA = "rdkafka"
"""In the name (``librdkafka``), or, of a binding, in the version (``2.16.1-rdkafka-2.16.0``)."""


def is_known(version: int) -> bool:
    """Whether this version of ApiVersions can be answered here."""
    return 0 <= version <= _NEWEST


@dataclass(frozen=True)
class Awareness:
    """What a client has to do with modes.

    Attributes:
        reads: it means KIP-694's Metadata when it says version 10.
        heeds: it does as modes say, wherever it has them from: nobody to be turned away.
        drops: it is a librdkafka. That takes a node for gone that the latest answer does not name, and fails what it
            had asked of it: one that brokers do not know of must not be named to it. A consumer whose question for a
            topic's metadata fails so joins its group minutes later (``topic.metadata.refresh.interval.ms``).
    """

    reads: bool = False
    heeds: bool = False
    drops: bool = False


def awareness(payload: bytes) -> Awareness:
    """What this ApiVersions request says of its client.

    Raises:
        MalformedFrame: it is no ApiVersions request.
    """
    header, request = stock.decode_request(payload)
    if header.api_version < _FEATURES_SINCE:
        return Awareness()
    name, version = request.client_software_name, request.client_software_version
    return Awareness(name == CLIENT_NAME, name in (CLIENT_NAME, UNDERLYING_NAME), _LIBRDKAFKA in f"{name} {version}")


def unsupported(correlation_id: int) -> bytes:
    """The answer to a version that is not known: version 0, which says which are (KIP-511)."""
    response = stock.ApiVersionsResponse(
        error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[(stock.API_VERSIONS_KEY, 0, _NEWEST)]
    )
    return stock.encode_response(response, 0, correlation_id)


def answered(payload: bytes, version: int, controller_id: str, answers: Answers, *, modes: bool) -> bytes:
    """The same as :func:`rewritten`, made once for all who are answered the same."""
    body = answers.get(
        memoryview(payload)[4:],
        ("versions", version, controller_id, modes),
        lambda: rewritten(payload, version, controller_id, modes=modes)[4:],
    )
    return payload[:4] + body


def metadata_version(payload: bytes, version: int, answers: Answers) -> int | None:
    """The newest version of Metadata in the broker's answer (a whole frame) to ApiVersions; None where it has none.

    Raises:
        MalformedFrame: the answer cannot be read.
    """
    told = answers.get(
        memoryview(payload)[4:],
        ("metadata version", version),
        lambda: _newest_metadata(payload, version).to_bytes(2, "big", signed=True),
    )
    newest = int.from_bytes(told, "big", signed=True)
    return None if newest < 0 else newest


def _newest_metadata(payload: bytes, version: int) -> int:
    _, answer = stock.decode_response(payload, stock.API_VERSIONS_KEY, version)
    return next((int(each.max_version) for each in answer.api_keys if each.api_key == stock.METADATA_KEY), -1)


def rewritten(payload: bytes, version: int, controller_id: str, *, modes: bool) -> bytes:
    """The broker's answer (a whole frame) with what the endpoint takes and offers.

    Args:
        version: of the request.
        controller_id: this endpoint's own controller.
        modes: whether the client has named itself, and is offered KIP-694's Metadata.

    Raises:
        MalformedFrame: the broker's answer cannot be read.
    """
    correlation_id, answer = stock.decode_response(payload, stock.API_VERSIONS_KEY, version)
    if answer.error_code:
        return payload
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    offered.pop(DESCRIBE_TOPIC_PARTITIONS_KEY, None)
    for key, (lowest, highest) in {
        stock.API_VERSIONS_KEY: (0, _NEWEST),
        stock.METADATA_KEY: _METADATA,
        stock.SASL_HANDSHAKE_KEY: (1, 32_767),  # after version 0, credentials follow without a header
    }.items():
        if key in offered:
            offered[key] = max(offered[key][0], lowest), min(offered[key][1], highest)
    if modes and offered.get(stock.METADATA_KEY, (0, 0))[1] == _METADATA[1]:
        offered[stock.METADATA_KEY] = offered[stock.METADATA_KEY][0], MODES_VERSION
    offered |= OURS
    fields = {
        "error_code": 0,
        "api_keys": [(key, *span) for key, span in sorted(offered.items()) if span[0] <= span[1]],
        "throttle_time_ms": answer.throttle_time_ms,
    }
    if version >= _FEATURES_SINCE:
        ours = (FEATURE, identity(controller_id))
        theirs = [(f.name, f.min_version, f.max_version) for f in answer.supported_features or ()]
        fields["supported_features"] = [f for f in theirs if f[0] not in ours] + [(name, 1, 1) for name in ours]
        if answer.finalized_features is not None:
            fields["finalized_features_epoch"] = answer.finalized_features_epoch
            fields["finalized_features"] = [
                (f.name, f.max_version_level, f.min_version_level) for f in answer.finalized_features
            ]
    return stock.encode_response(stock.ApiVersionsResponse(**fields), version, correlation_id)
