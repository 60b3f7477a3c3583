"""Spans as a table of Apache Parquet.

Owns: the columns and the size of row groups. Must not know: files. Invariants: the columns are the keys of the JSON
lines; only one row group is in memory; the metadata has the description of the recording, and the counts.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

import numpy as np

from brickd.errors import BrickdError
from brickd.export.encoder import WithoutContext, Write
from brickd.export.lines import KEYS, PLACE_KEYS, TRACK_KEYS, document, track_values
from brickd.export.recorded_workers import DescribedRecording
from brickd.export.span_rows import KINDS, STEP, RecordedWorker, SpanBatch
from brickd.export.span_stream import SpanCounts

_GROUP_ROWS = 1 << 17
_METADATA = "brickd"  # the key in the file's metadata


class Parquet(WithoutContext):
    """A table with a row for each span."""

    def __init__(self, write: Write, recorded: DescribedRecording) -> None:
        try:
            self._arrow: Any = importlib.import_module("pyarrow")
            self._parquet: Any = importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise BrickdError("-f parquet needs pyarrow: pip install 'brickd[export]', or use -f csv") from None
        self._recorded = recorded
        self._sink = _Sink(write)
        self._batches: list[Any] = []
        self._waiting = 0
        self._places: dict[int, list[Any]] = {}

    def begin(self) -> None:
        """Write the beginning of the file."""
        arrow = self._arrow
        texts = {"worker", "service", "stream", "brick", "category", "step"}
        types = {
            "lane": arrow.int32(),
            "thread": arrow.uint64(),
            "layer": arrow.int32(),
            "path": arrow.list_(arrow.string()),
        }
        types |= dict.fromkeys(texts, arrow.string()) | {"kind": arrow.string()}
        types |= dict.fromkeys(("elements", "bytes", "rows"), arrow.uint64()) | {"lost_before": arrow.uint32()}
        schema = arrow.schema([(key, types.get(key, arrow.int64())) for key in KEYS])
        self._schema = schema.with_metadata({_METADATA: json.dumps(document(self._recorded))})
        self._file = self._parquet.ParquetWriter(arrow.PythonFile(self._sink, "w"), self._schema)

    def take(self, batch: SpanBatch) -> None:
        """Write the batch, combined with other batches."""
        self._batches.append(self._columns(batch))
        self._waiting += len(self._batches[-1])
        if self._waiting >= _GROUP_ROWS:
            self._flush()

    def end(self, counts: SpanCounts) -> None:
        """Write the rest."""
        self._flush()
        self._file.add_key_value_metadata({f"{_METADATA}_counts": json.dumps(counts.document())})
        self._file.close()

    def _flush(self) -> None:
        if self._batches:
            self._file.write_table(self._arrow.Table.from_batches(self._batches, self._schema))
        self._batches, self._waiting = [], 0

    def _columns(self, batch: SpanBatch) -> Any:
        arrow, rows = self._arrow, batch.array()
        count = len(rows)
        fields = {field.name: field.type for field in self._schema}
        columns = {
            key: arrow.array([value] * count, fields[key])
            for key, value in zip(TRACK_KEYS, track_values(batch.track), strict=True)
        }
        path = arrow.array(rows["path"].astype(np.int32))
        columns |= {
            key: column.take(path) for key, column in zip(PLACE_KEYS, self._places_of(batch.track.worker), strict=True)
        }
        columns["kind"] = arrow.array(KINDS, arrow.string()).take(arrow.array(rows["kind"].astype(np.int32)))
        columns["begin_unix_ns"] = arrow.array(rows["begin_ns"] + self._recorded.epoch_ns)
        columns["step"] = _digits(arrow, rows["step"])
        columns["rows"] = arrow.array(rows["rows"], mask=rows["kind"] != STEP)
        columns["lost_before"] = arrow.array(rows["lost"].copy())
        for key in ("duration_ns", "self_ns", "elements", "bytes"):
            columns[key] = arrow.array(rows[key].copy())
        return arrow.RecordBatch.from_arrays([columns[key] for key in KEYS], schema=self._schema)

    def _places_of(self, worker: RecordedWorker) -> list[Any]:
        key = id(worker.places)
        if key not in self._places:
            places, fields = worker.places, {field.name: field.type for field in self._schema}
            values = zip(*((each.brick, each.category, each.layer, list(each.stack)) for each in places), strict=True)
            self._places[key] = [
                self._arrow.array(column, fields[name]) for name, column in zip(PLACE_KEYS, values, strict=True)
            ]
        return self._places[key]


def _digits(arrow: Any, steps: np.ndarray[Any, Any]) -> Any:
    """Return the column of steps. Most steps have many spans, so the text of each step is stored only once."""
    known, places = np.unique(steps, return_inverse=True)
    texts = arrow.array([f"{step:016x}" if step else None for step in known.tolist()], arrow.string())
    return texts.take(arrow.array(places))


class _Sink:
    """A file object that only writes."""

    closed = False

    def __init__(self, write: Write) -> None:
        self._write = write
        self._at = 0

    def write(self, piece: Any) -> int:
        self._write(memoryview(piece))
        self._at += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Do nothing: each write is complete."""

    def close(self) -> None:
        """Do nothing: the caller owns the file."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False
