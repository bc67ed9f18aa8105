"""Messages of Kafka's protocol as bytes: the one place that imports kafka-python, and only its codec.

Our own messages are built from the schemas in ``modeaware/wire/schemas``, and so is Metadata, whose version 10 is
KIP-694's here; CreatePartitions and ApiVersions are kafka-python's. Its own clients in the same process are not
affected. Message objects have the schema's fields as snake_case attributes. All functions may be called from any
thread. Decoding is bounded, see :mod:`modeaware.wire.strict`.

The functions of this module speak the controller's apis; those of :mod:`~modeaware.wire.stock` and
:mod:`~modeaware.wire.kip694` two other choices of apis and versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from modeaware.errors import ModeAwareError
from modeaware.wire import schemas
from modeaware.wire.dialect import (
    API_VERSIONS_KEY,
    REQUEST_LIMITS,
    RESPONSE_LIMITS,
    Dialect,
    Header,
    peek_header,
)


class MissingExtra(ModeAwareError, ImportError):
    """An optional dependency is not installed."""


try:
    from kafka.protocol.admin.topics import CreatePartitionsRequest, CreatePartitionsResponse
    from kafka.protocol.api_header import ResponseClassRegistry
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.metadata import MetadataRequest as KafkaMetadataRequest
    from kafka.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
except ImportError as error:
    raise MissingExtra(
        f"talking to the controller needs kafka-python's protocol codec ({error}): install modeaware[controller]"
    ) from error

__all__ = [
    "ALTER_GROUP_RULES_KEY",
    "API_VERSIONS_KEY",
    "CREATE_PARTITIONS_KEY",
    "DELETE_PARTITIONS_KEY",
    "METADATA_KEY",
    "REQUEST_LIMITS",
    "RESPONSE_LIMITS",
    "SUPPORTED_VERSIONS",
    "AlterGroupRulesRequest",
    "AlterGroupRulesResponse",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "DeletePartitionsRequest",
    "DeletePartitionsResponse",
    "Header",
    "KafkaMetadataRequest",
    "MESSAGES",
    "MetadataRequest",
    "MetadataResponse",
    "MissingExtra",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "is_supported",
    "peek_header",
]

DELETE_PARTITIONS_KEY = 694
"""The api key of DeletePartitions, which KIP-694 leaves open (``xxx``). The schemas carry the same number."""
ALTER_GROUP_RULES_KEY = 695
"""The api key of AlterGroupRules, which is ours alone. The schemas carry the same number."""
CREATE_PARTITIONS_KEY: int = CreatePartitionsRequest.API_KEY
METADATA_KEY = 3


@contextmanager
def _stock_response_class(api_key: int) -> Iterator[None]:
    """Define a response class without taking the place of kafka-python's own.

    A response class registers itself by api key for the whole process when it is defined, and kafka-python's clients
    decode every response by that registry.
    """
    registry = ResponseClassRegistry._response_class_registry
    stock = registry.get(api_key)
    try:
        yield
    finally:
        if stock is None:
            registry.pop(api_key, None)
        else:
            registry[api_key] = stock


class DeletePartitionsRequest(ApiMessage, load_json=schemas):  # type: ignore[misc,call-arg,unused-ignore]  # untyped
    """KIP-694's request: ``timeout_ms``, ``immediate_delete``, ``delete_partitions_delay``, ``topics``."""


with _stock_response_class(DELETE_PARTITIONS_KEY):

    class DeletePartitionsResponse(ApiMessage, load_json=schemas):  # type: ignore[misc,call-arg,unused-ignore]  # untyped
        """KIP-694's response: ``throttle_time_ms``, ``error_code``, ``error_message``, ``responses``."""


class AlterGroupRulesRequest(ApiMessage, load_json=schemas):  # type: ignore[misc,call-arg,unused-ignore]  # untyped
    """``timeout_ms``, ``add``, ``remove``."""


with _stock_response_class(ALTER_GROUP_RULES_KEY):

    class AlterGroupRulesResponse(ApiMessage, load_json=schemas):  # type: ignore[misc,call-arg,unused-ignore]  # untyped
        """``throttle_time_ms``, ``error_code``, ``error_message``."""


class MetadataRequest(ApiMessage, load_json=schemas):  # type: ignore[misc,call-arg,unused-ignore]  # untyped
    """``topics``, ``allow_auto_topic_creation``, ...; in version 10 (KIP-694's) ``modes_only`` and ``fresh``, too."""


with _stock_response_class(METADATA_KEY):

    class MetadataResponse(ApiMessage, load_json=schemas):  # type: ignore[misc,call-arg,unused-ignore]  # untyped
        """``brokers``, ``topics``, ...; in version 10 (KIP-694's) partitions have a ``mode``.

        One class for all versions: what was decoded from Kafka's version 9 can be given modes and be encoded as 10.
        """


MESSAGES: dict[int, tuple[Any, Any]] = {
    ALTER_GROUP_RULES_KEY: (AlterGroupRulesRequest, AlterGroupRulesResponse),
    API_VERSIONS_KEY: (ApiVersionsRequest, ApiVersionsResponse),
    CREATE_PARTITIONS_KEY: (CreatePartitionsRequest, CreatePartitionsResponse),
    DELETE_PARTITIONS_KEY: (DeletePartitionsRequest, DeletePartitionsResponse),
    METADATA_KEY: (MetadataRequest, MetadataResponse),
}
"""api key -> (request class, response class)."""
_CONTROLLERS = (ALTER_GROUP_RULES_KEY, API_VERSIONS_KEY, CREATE_PARTITIONS_KEY, DELETE_PARTITIONS_KEY)
SUPPORTED_VERSIONS = {key: (0, int(MESSAGES[key][0].max_version)) for key in _CONTROLLERS}
"""The versions of what the controller takes: api key -> (lowest, highest)."""
_CONTROLLER = Dialect(MESSAGES, SUPPORTED_VERSIONS)
is_supported = _CONTROLLER.is_supported
encode_request = _CONTROLLER.encode_request
decode_request = _CONTROLLER.decode_request
encode_response = _CONTROLLER.encode_response
decode_response = _CONTROLLER.decode_response
