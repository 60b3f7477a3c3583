"""The columns of results: their names, their kinds, and where to find their values in a row of a document.

Owns: the kinds of columns and their types in numpy, pandas and Arrow, the declared columns of every result. Must not
know: numpy, how documents are made. Invariants: The name of a column is the path of its value in the JSON row. The type
of a column never depends on the values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

_I64_MAX = 2**63 - 1


def _same(value: Any) -> Any:
    return value


def _whole(value: int) -> int:
    """Return a number, limited to the range of 64 bits with a sign. Only a damaged segment exceeds this range."""
    return min(value, _I64_MAX)


def _moment(value: str) -> datetime:
    """Return a time of a document in UTC, without a time zone, because numpy has no time zones."""
    return datetime.fromisoformat(value.removesuffix("Z"))


def _unicode(value: str) -> str:
    """Return a text as valid Unicode.

    This matters because the name of a file may contain bytes that are not valid UTF-8.
    """
    return value.encode("utf-8", "backslashreplace").decode()


class Kind(NamedTuple):
    """A kind of column.

    Attributes:
        numpy: the type of its field in a structured array.
        pandas: the type of its column in a data frame.
        arrow: the name of its type in Arrow; "list" is a list of strings.
        unknown: the value that represents null in a structured array.
        value: converts a value in JSON to the value for an array.
        portable: converts the value for an array to the value for Arrow, which has fewer types.
    """

    numpy: str
    pandas: str
    arrow: str
    unknown: Any = None
    value: Callable[[Any], Any] = _same
    portable: Callable[[Any], Any] = _same


TEXT = Kind("O", "object", "string", portable=_unicode)
COUNT = Kind("i8", "int64", "int64", value=_whole)  # never null
WHOLE = Kind("f8", "Int64", "int64", unknown=float("nan"), value=_whole)  # a whole number, or null
NUMBER = Kind("f8", "float64", "float64", unknown=float("nan"))
FLAG = Kind("?", "bool", "bool")  # never null
MAYBE = Kind("O", "boolean", "bool")  # a flag, or null
TIME = Kind("M8[ms]", "datetime64[ms, UTC]", "timestamp", unknown="NaT", value=_moment)
TEXTS = Kind("O", "object", "list", portable=lambda value: [*map(_unicode, value)])  # a list of texts
OBJECT = Kind("O", "object", "string", portable=json.dumps)  # any list or object of JSON


class TableColumn(NamedTuple):
    """A column.

    Attributes:
        name: the name of the column, which is also the path of a value: `lanes.used` is `row["lanes"]["used"]`.
        kind: the kind of the values in the column.
    """

    name: str
    kind: Kind

    def reader(self) -> Callable[[Mapping[str, Any]], Any]:
        """Return a function that takes the value from a row. The value is null if a part of its path is null.

        >>> used = TableColumn("lanes.used", WHOLE).reader()
        >>> used({"lanes": {"used": 3, "room": 32}}), used({"lanes": None})
        (3, None)
        """
        first, *rest = self.name.split(".")
        if not rest:
            return itemgetter(first)

        def read(row: Mapping[str, Any]) -> Any:
            value = row[first]
            for key in rest:
                value = None if value is None else value[key]
            return value

        return read


class Schema(NamedTuple):
    """The columns of one result.

    Attributes:
        name: the name of the result.
        rows: the key of the list of rows in the document.
        shown: the names of the columns that a notebook shows; the others are only in the data.
    """

    name: str
    rows: str
    columns: tuple[TableColumn, ...]
    shown: tuple[str, ...]

    def grouped(self, group: str | None) -> Schema:
        """Return the schema of rows that are split by worker, service or layer."""
        if group is None:
            return self
        column = TableColumn(group, WHOLE if group == "layer" else TEXT)
        return self._replace(
            columns=(*self.columns[:2], column, *self.columns[2:]), shown=(self.shown[0], group, *self.shown[1:])
        )


def _columns(*parts: tuple[Kind, str]) -> tuple[TableColumn, ...]:
    """Return the columns of several kinds, in order.

    All names of one kind are given as one text, separated by spaces.
    """
    return tuple(TableColumn(name, kind) for kind, names in parts for name in names.split())


BRICKS = Schema(
    "bricks",
    "bricks",
    _columns(
        (TEXT, "name category"),
        (COUNT, "count total_ns self_ns mean_ns"),
        (WHOLE, "min_ns max_ns"),
        (COUNT, "p50_ns p90_ns p95_ns p99_ns p999_ns"),
        (NUMBER, "cv"),
        (COUNT, "elements bytes flops"),
        (NUMBER, "count_per_second elements_per_second elements_per_second_in_brick flops_per_second_in_brick"),
        (NUMBER, "flops_per_byte"),
        (FLAG, "bounded"),
        (WHOLE, "latency_to_sync_mean_ns latency_to_sync_max_ns"),
        (TEXT, "worst_worker"),
        (NUMBER, "spread share_percent"),
    ),
    ("name", "category", "count", "self_ns", "share_percent", "total_ns", "p50_ns", "p99_ns", "worst_worker", "spread"),
)

HISTORY = Schema(
    "history",
    "slots",
    _columns(
        (TIME, "from to"),
        (COUNT, "over_ns workers count"),
        (NUMBER, "count_per_second"),
        (COUNT, "self_ns"),
        (WHOLE, "p50_ns p99_ns"),
        (COUNT, "lost"),
    ),
    ("from", "workers", "count", "count_per_second", "p50_ns", "p99_ns", "self_ns", "lost"),
)

WORKERS = Schema(
    "workers",
    "workers",
    _columns(
        (TEXT, "name service"),
        (WHOLE, "index"),
        (TEXT, "coordinates uuid segment"),
        (WHOLE, "pid"),
        (TEXT, "state"),
        (COUNT, "together"),
        (TEXT, "set.spans set.recording set.fingerprints"),
        (MAYBE, "set.filtered"),
        (TEXT, "configured.fingerprints"),
        (MAYBE, "drained"),
        (TIME, "started"),
        (WHOLE, "age_ns"),
        (TEXT, "clock"),
        (COUNT, "ledger.spans.begun ledger.spans.summarized ledger.spans.rejected ledger.spans.open"),
        (COUNT, "ledger.spans.abandoned ledger.spans.unpublished ledger.spans.nested ledger.spans.no_lane"),
        (COUNT, "ledger.spans.unmatched ledger.spans.removed"),
        (COUNT, "ledger.details.consumed"),
        (OBJECT, "ledger.details.dropped"),
        (COUNT, "ledger.details.in_ring ledger.details.lost_with_daemon ledger.details.removed"),
        (COUNT, "ledger.events.consumed"),
        (OBJECT, "ledger.events.dropped"),
        (COUNT, "ledger.events.in_ring ledger.events.lost_with_daemon ledger.events.removed"),
        (COUNT, "ledger.marks.wanted ledger.marks.refused ledger.marks.removed"),
        (COUNT, "ledger.deferred.started ledger.deferred.measured ledger.deferred.bounded ledger.deferred.pending"),
        (COUNT, "ledger.deferred.orphaned ledger.deferred.late ledger.deferred.unmatched ledger.deferred.refused"),
        (COUNT, "ledger.lost.spans ledger.lost.details ledger.lost.events"),
        (COUNT, "lost threads"),
        (WHOLE, "lanes.used lanes.room paths.used paths.room names.used names.room memory_bytes"),
        (NUMBER, "cpu_percent"),
        (WHOLE, "rss_bytes"),
        (OBJECT, "open"),
        (COUNT, "pending"),
        (TEXT, "problem"),
    ),
    ("name", "pid", "state", "age_ns", "threads", "ledger.spans.summarized", "lost", "memory_bytes", "rss_bytes"),
)

TREE = Schema(
    "tree",
    "nodes",
    _columns(
        (COUNT, "id"),
        (WHOLE, "parent"),
        (COUNT, "depth"),
        (TEXT, "kind name"),
        (FLAG, "given"),
        (COUNT, "count order"),
        (OBJECT, "stated"),
        (WHOLE, "total_ns"),
        (COUNT, "elements bytes flops"),
        (OBJECT, "kernel transfer definitions task"),
        (WHOLE, "layer"),
        (COUNT, "layers"),
        (TEXT, "category"),
        (FLAG, "bounded"),
        (WHOLE, "self_ns"),
        (NUMBER, "share_percent"),
        (WHOLE, "mean_ns min_ns max_ns p50_ns p90_ns p95_ns p99_ns"),
        (NUMBER, "cv flops_per_second flops_per_byte"),
        (OBJECT, "needs"),
        (WHOLE, "slack_ns"),
        (FLAG, "critical"),
        (COUNT, "hidden_nodes hidden_self_ns"),
    ),
    ("depth", "name", "kind", "layer", "total_ns", "share_percent", "self_ns", "count", "p50_ns", "p99_ns", "critical"),
)

PROBLEMS = Schema(
    "problems",
    "problems",
    _columns(
        (TEXT, "id kind service"), (TEXTS, "workers"), (TEXT, "text command"), (TIME, "since seen silenced_until")
    ),
    ("id", "kind", "service", "text", "command", "since", "seen"),
)

_SPAN = _columns(
    (TEXT, "worker service"),
    (WHOLE, "lane thread"),
    (TEXT, "stream brick category"),
    (WHOLE, "layer"),
    (TEXTS, "path"),
    (TEXT, "kind"),
    (COUNT, "begin_unix_ns duration_ns self_ns"),
    (TEXT, "step"),
    (COUNT, "elements bytes"),
    (WHOLE, "rows"),
    (COUNT, "lost_before"),
    (TEXT, "step_text"),
)
SPANS = Schema(
    "spans",
    "spans",
    _SPAN,
    ("worker", "brick", "layer", "begin_unix_ns", "duration_ns", "self_ns", "step", "elements", "kind"),
)
STEPS = Schema(
    "steps",
    "steps",
    _SPAN,
    ("worker", "brick", "step", "begin_unix_ns", "duration_ns", "self_ns", "rows", "elements"),
)

FINGERPRINTS = Schema(
    "fingerprints",
    "fingerprints",
    _columns(
        (TEXT, "worker service uuid kernel"),
        (WHOLE, "layer"),
        (TEXT, "category step step_text"),
        (COUNT, "position"),
        (TEXT, "checksum dtype"),
        (COUNT, "elements"),
        (NUMBER, "min max mean l2"),
        (COUNT, "nan pos_inf neg_inf"),
        (TEXT, "fnv1a"),
        (OBJECT, "shape"),
        (TEXT, "backend"),
        (OBJECT, "inputs"),
        (FLAG, "by_row"),
    ),
    ("worker", "kernel", "layer", "step", "position", "dtype", "shape", "checksum", "mean", "l2", "nan"),
)

SITES = Schema(
    "sites",
    "sites",
    _columns(
        (TEXT, "kernel"),
        (WHOLE, "layer"),
        (TEXT, "category"),
        (COUNT, "fingerprints compared identical within diverged"),
        (OBJECT, "not_comparable"),
        (COUNT, "missing lone bare"),
        (TEXT, "verdict blame"),
        (NUMBER, "relative_error"),
    ),
    ("kernel", "layer", "compared", "identical", "within", "diverged", "verdict", "blame", "relative_error"),
)
