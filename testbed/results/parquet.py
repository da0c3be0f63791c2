"""A pack's columns as Parquet bytes, the same bytes for the same numbers, and back."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from testbed.config.pack import Pack
from testbed.results.fingerprint import fingerprint

HEADER = b"testbed"
"""Key of the file metadata that names the pack and the fingerprint its numbers were computed with."""


def encode(columns: Mapping[str, Any], pack: Pack) -> bytes:
    """Return the Parquet file of a pack's long-format columns.

    columns: "cell" (ids), "step", then Run fields and metrics, of equal length. Integers become int64, other
    numbers float64, sequences of counts list<int64>. Rows are ordered by the pack's cells, then by step.
    Raises ValueError if a cell has no row, a row no cell of the pack, or the lengths differ.
    """
    place = {name: index for index, name in enumerate(pack.names)}
    missing = [name for name in ("cell", "step") if name not in columns]
    if missing:
        raise ValueError(f"The result misses the columns {missing}.")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"The columns of a result must have equal lengths, got {lengths}.")
    found = set(columns["cell"])
    if found != set(place):
        foreign, silent = sorted(found - set(place)), sorted(set(place) - found)
        extra = f"has rows of cells outside its pack, {foreign}" if foreign else f"lacks rows of {silent}"
        raise ValueError(f"The result {extra}.")
    cell = np.array([place[name] for name in columns["cell"]])
    order = np.lexsort((np.asarray(columns["step"]), cell))
    table = pa.table({name: _column(values, order) for name, values in columns.items()})
    meta = json.dumps({"pack": pack.id, "fingerprint": fingerprint()}, sort_keys=True)
    text = [field.name for field in table.schema if pa.types.is_string(field.type)]
    sink = pa.BufferOutputStream()
    table = table.replace_schema_metadata({HEADER: meta.encode()})
    pq.write_table(table, sink, compression="zstd", use_dictionary=text, write_page_checksum=True)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode(content: bytes) -> pa.Table:
    """Return a pack's table."""
    return pq.read_table(pa.BufferReader(content)).replace_schema_metadata(None)


def header(content: bytes) -> dict[str, Any]:
    """Return {"pack": id, "fingerprint": …} of a pack's file; raise ValueError if it has none."""
    metadata = pq.read_schema(pa.BufferReader(content)).metadata or {}
    found = json.loads(metadata.get(HEADER, b"{}"))
    if not isinstance(found, dict):
        raise ValueError(f"The header is {found!r}, expected an object.")
    return found


def _column(values: Any, order: np.ndarray) -> pa.Array:
    if np.ndim(values[0]) == 1:
        rows = [np.asarray(values[row], dtype=np.int64) for row in order]
        ends = np.cumsum([0, *map(len, rows)], dtype=np.int32)
        return pa.ListArray.from_arrays(_numbers(ends), _numbers(np.concatenate(rows)))
    array = np.asarray(values)
    if array.dtype.kind in "UO":
        text = [str(array[row]).encode() for row in order]
        ends = np.cumsum([0, *map(len, text)], dtype=np.int32)
        return pa.StringArray.from_buffers(len(text), pa.py_buffer(ends), pa.py_buffer(b"".join(text)))
    return _numbers(array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)[order])


def _numbers(array: np.ndarray) -> pa.Array:
    """Return `pa.array(array)` without importing pandas, which takes each worker half a second."""
    kind = pa.from_numpy_dtype(array.dtype)
    return pa.Array.from_buffers(kind, len(array), [None, pa.py_buffer(np.ascontiguousarray(array))])
