"""ApiVersions at the endpoint: the broker's response, changed for the requests that the endpoint answers itself."""

from __future__ import annotations

from dataclasses import dataclass

from modeaware.endpoint.metadata import Answers
from modeaware.errors import ErrorCode
from modeaware.wire import codec
from modeaware.wire.capabilities import CLIENT_NAME, FEATURE, UNDERLYING_NAME, identity
from modeaware.wire.frames import INT16

DESCRIBE_TOPIC_PARTITIONS_KEY = 75
OURS = {
    key: codec.VERSIONS[key]
    for key in (
        codec.CREATE_PARTITIONS_KEY,
        codec.DELETE_PARTITIONS_KEY,
        codec.ALTER_GROUP_RULES_KEY,
        codec.REPLACE_TOPICS_KEY,
    )
}
"""The requests that the endpoint answers itself, whatever the broker supports: api key -> (lowest, highest version)."""
_NEWEST = codec.VERSIONS[codec.API_VERSIONS_KEY][1]
_BOUNDS = {
    codec.API_VERSIONS_KEY: (0, _NEWEST),
    codec.METADATA_KEY: (0, codec.METADATA_WITHOUT_IDS),
    codec.SASL_HANDSHAKE_KEY: (1, 32_767),  # after a handshake of version 0, credentials have no request header
}
_FEATURES_SINCE = 3
_LIBRDKAFKA = "rdkafka"
"""A librdkafka has this in its software name (``librdkafka``). A binding has it in its software version
(``2.16.1-rdkafka-2.16.0``)."""


def is_known(version: int) -> bool:
    return 0 <= version <= _NEWEST


@dataclass(frozen=True)
class Awareness:
    """How a client treats modes.

    Attributes:
        reads: whether the client's Metadata 10 is KIP-694's.
        follows: whether the client follows the modes, from any source. If so, it is never refused as an old client.
        drops: whether the client is a librdkafka. A librdkafka closes its connection to a node that the latest response
            does not name, so the pending requests on the connection fail. A consumer whose Metadata request fails joins
            its group minutes later (``topic.metadata.refresh.interval.ms``). So responses to a librdkafka name only the
            nodes that brokers name, unless the librdkafka is refused as an old client.
    """

    reads: bool = False
    follows: bool = False
    drops: bool = False

    def __or__(self, other: Awareness) -> Awareness:
        return Awareness(self.reads or other.reads, self.follows or other.follows, self.drops or other.drops)


def awareness(payload: bytes) -> Awareness:
    """Return how the client that sent this ApiVersions request treats modes."""
    header, request = codec.decode_request(payload)
    if header.api_version < _FEATURES_SINCE:
        return Awareness()
    name, version = request.client_software_name, request.client_software_version
    return Awareness(name == CLIENT_NAME, name in (CLIENT_NAME, UNDERLYING_NAME), _LIBRDKAFKA in f"{name} {version}")


def unsupported(correlation_id: int) -> bytes:
    """Return the response to an ApiVersions request of an unknown version: in version 0, with the known versions
    (KIP-511)."""
    response = codec.ApiVersionsResponse(
        error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[(codec.API_VERSIONS_KEY, 0, _NEWEST)]
    )
    return codec.encode_response(response, 0, correlation_id)


def answered(
    payload: bytes, version: int, controller_id: str, answers: Answers, *, modes: bool
) -> tuple[bytes, int | None]:
    """Return the broker's response (a whole frame), changed for the endpoint; and the broker's newest version of
    Metadata, or None if the broker has none.

    The endpoint's requests and features are added; some of the broker's requests are removed or limited. Equal
    responses of brokers share one result for each version, controller and ``modes``.
    """
    body = answers.get(
        memoryview(payload)[4:],
        ("versions", version, controller_id, modes),
        lambda: _rewritten(payload, version, controller_id, modes=modes),
    )
    (newest,) = INT16.unpack_from(body)
    return payload[:4] + body[INT16.size :], None if newest < 0 else newest


def _rewritten(payload: bytes, version: int, controller_id: str, *, modes: bool) -> bytes:
    """Return the bytes of the broker's newest version of Metadata (-1 if none), and then the body of the response."""
    _, answer = codec.decode_response(payload, codec.API_VERSIONS_KEY, version)
    offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    newest = INT16.pack(offered.get(codec.METADATA_KEY, (-1, -1))[1])
    if answer.error_code:
        return newest + payload[4:]
    offered.pop(DESCRIBE_TOPIC_PARTITIONS_KEY, None)
    for key, (lowest, highest) in _BOUNDS.items():
        if key in offered:
            offered[key] = max(offered[key][0], lowest), min(offered[key][1], highest)
    if modes and offered.get(codec.METADATA_KEY, (0, 0))[1] == codec.METADATA_WITHOUT_IDS:
        offered[codec.METADATA_KEY] = offered[codec.METADATA_KEY][0], codec.MODES_VERSION
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
    return newest + codec.encode_response(codec.ApiVersionsResponse(**fields), version, 0)[4:]
