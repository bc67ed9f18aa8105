"""Columns of keys as bytes in one buffer, each with a start and a length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Keys:
    """A column, or a chunk of one.

    Attributes:
        data: the bytes of all keys, and perhaps others.
        starts: where each key begins in ``data``, never falling.
        lengths: how long each key is in bytes; 0 for a null key.
        nulls: which keys are null; None where no key is.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    nulls: NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.lengths)


def keys_of(column: Any) -> list[Keys]:
    """The chunks of a column; see :mod:`partitioners.columns` for what a column is.

    Raises:
        TypeError: it is none.
    """
    if type(column).__module__.partition(".")[0] == "pyarrow":
        return _of_arrow(column)
    if isinstance(column, np.ndarray):
        if column.ndim != 1 or column.dtype.kind not in "OS":
            raise TypeError(
                f"keys are a NumPy array of one dimension, of objects or of S, not {column.ndim} of {column.dtype}"
            )
        return [_of_fixed(column) if column.dtype.kind == "S" else _of_objects(column.tolist())]
    if isinstance(column, Sequence) and not isinstance(column, str | bytes | bytearray | memoryview):
        return [_of_objects(column)]
    raise TypeError(f"a column of keys is an Arrow or NumPy array or a sequence of keys, not {type(column).__name__}")


def _of_arrow(column: Any) -> list[Keys]:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        return [keys for chunk in column.chunks for keys in _of_arrow(chunk)]
    if not isinstance(column, pa.Array):
        raise TypeError(f"a column of keys is an Array or a ChunkedArray of pyarrow, not {type(column).__name__}")
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _of_arrow(column.dictionary_decode())
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return [_of_buffers(column, np.int32)]
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return [_of_buffers(column, np.int64)]
    if pa.types.is_null(kind) or pa.types.is_fixed_size_binary(kind) or str(kind) == "binary_view":
        return [_of_buffers(column.cast(pa.large_binary()), np.int64)]
    if str(kind) == "string_view":
        return [_of_buffers(column.cast(pa.large_string()), np.int64)]
    raise TypeError(f"keys are binary or string in Arrow, not {kind}")


def _of_buffers(array: Any, offset_type: type[np.int32 | np.int64]) -> Keys:
    _, offset_buffer, data_buffer = array.buffers()
    if len(array) == 0 or offset_buffer is None:
        return _of_objects([None] * len(array))
    offsets = np.frombuffer(offset_buffer, offset_type)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    lengths = np.diff(offsets)
    nulls = None
    if array.null_count:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        lengths[nulls] = 0  # Arrow lets a null have bytes
    return Keys(data, offsets[:-1], lengths, nulls)


def _of_fixed(column: NDArray[Any]) -> Keys:
    width = column.dtype.itemsize
    if width == 0:
        return _of_objects([b""] * len(column))
    lengths = np.strings.str_len(column) if hasattr(np, "strings") else np.char.str_len(column)
    data = np.ascontiguousarray(column).view(np.uint8)
    return Keys(data, np.arange(len(column), dtype=np.int64) * width, lengths.astype(np.int64), None)


def _of_objects(values: Sequence[Any]) -> Keys:
    encoded = [
        value if type(value) is bytes else b"" if value is None else _encoded(value, row)
        for row, value in enumerate(values)
    ]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    starts = np.cumsum(lengths) - lengths
    nulls = None
    if None in values:
        nulls = np.fromiter((value is None for value in values), np.bool_, len(values))
    return Keys(np.frombuffer(b"".join(encoded), np.uint8), starts, lengths, nulls)


def _encoded(value: Any, row: int) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"row {row} of a column of keys is bytes, str or None, not {type(value).__name__}")
