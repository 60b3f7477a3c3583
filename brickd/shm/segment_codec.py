"""The codec of readings.

Owns: the stored format of readings, and the tables that they share. Must not know: files. Invariant: Decoding reverses
encoding.
"""

from __future__ import annotations

import itertools
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from brickd.base.json_values import composed, plain
from brickd.shm import _reader, copy_checks
from brickd.shm.segment_copy import CallPath, Reading, SiteKey

_BYTES = ("uuid", "boot_id", "service", "coordinates")  # the fields of the header that are bytes
_ARRAYS = ("summaries", "latency")
_PLAIN = ("file", "pid", "process", "odd", "moving", "tick_ns", "now_ticks", "memory_bytes", "deferred")

Row = TypeVar("Row")
_numbers = itertools.count()
# The shared lists in use, by the hash of their rows. If two lists have the same hash, only the later one is here.
_alive: WeakValueDictionary[int, Shared[Any]] = WeakValueDictionary()


class Shared(list[Row]):
    """Names, paths or sites that most workers of a service share. The list must not be changed."""

    __slots__ = ("__weakref__", "_text", "number")

    def __init__(self, rows: Iterable[Row]) -> None:
        super().__init__(rows)
        self.number = next(_numbers)
        self._text = ""
        _alive[hash(tuple(self))] = self

    def text(self) -> str:
        """Return the list as JSON text. The text is cached, because each checkpoint needs it."""
        if not self._text:
            self._text = plain(self)
        return self._text


def shared(rows: list[Row]) -> Shared[Row]:
    """Return the shared list that has these rows."""
    if isinstance(rows, Shared):
        return rows
    found = _alive.get(hash(tuple(rows)))
    return found if found is not None and found == rows else Shared(rows)


def compact(reading: Reading) -> Reading:
    """Return the reading with shared tables and with packed summaries."""
    return replace(
        reading,
        names=shared(reading.names),
        paths=shared(reading.paths),
        sites=shared(reading.sites),
        summaries=_packed(reading.summaries),
        latency=_packed(reading.latency),
    )


def _packed(table: bytes | _reader.Packed) -> _reader.Packed:
    return table if isinstance(table, _reader.Packed) else _reader.Packed(table)


def written(reading: Reading) -> str:
    """Encode a reading. Instead of names, paths and sites, it has the ids of the tables that contain these."""
    header = {name: value.hex() if isinstance(value, bytes) else value for name, value in reading.header.items()}
    document = {
        **{name: getattr(reading, name) for name in _PLAIN},
        "header": header,
        "lanes": reading.lanes,
        "names": shared(reading.names).number,
        "paths": shared(reading.paths).number,
    }
    if reading.sites:  # most workers have no sites
        document["sites"] = shared(reading.sites).number
    tables = {name: packed_text(_packed(getattr(reading, name))) for name in _ARRAYS}
    return composed({name: plain(value) for name, value in document.items()} | tables)


class SharedTables(NamedTuple):
    """The tables of names, paths and sites of readings, by id. Empty tables of sites have no id."""

    names: Mapping[int, Shared[tuple[str, int] | None]]
    paths: Mapping[int, Shared[CallPath | None]]
    sites: Mapping[int, Shared[SiteKey | None]]

    @classmethod
    def over(cls, readings: Collection[Reading]) -> SharedTables:
        """Return the tables of these readings."""
        return cls(
            _numbered(reading.names for reading in readings),
            _numbered(reading.paths for reading in readings),
            _numbered(reading.sites for reading in readings if reading.sites),
        )

    def __or__(self, other: SharedTables) -> SharedTables:
        return SharedTables({**self.names, **other.names}, {**self.paths, **other.paths}, {**self.sites, **other.sites})

    def without(self, numbers: Container[int]) -> SharedTables:
        """Return the tables, but leave out those with one of these ids."""
        return SharedTables(
            {number: rows for number, rows in self.names.items() if number not in numbers},
            {number: rows for number, rows in self.paths.items() if number not in numbers},
            {number: rows for number, rows in self.sites.items() if number not in numbers},
        )

    def numbers(self) -> set[int]:
        """The ids of all tables."""
        return {*self.names, *self.paths, *self.sites}

    def texts(self) -> dict[str, str]:
        """Return the tables as JSON texts. Each text is one member of a JSON object."""
        return {
            what: composed({str(number): rows.text() for number, rows in table.items()})
            for what, table in (("names", self.names), ("paths", self.paths), ("sites", self.sites))
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> SharedTables:
        """Decode the output of `texts`."""
        return cls(
            _read(document["names"], _name, copy_checks.names),
            _read(document["paths"], CallPath, copy_checks.paths),
            _read(document.get("sites", {}), SiteKey, copy_checks.sites),
        )


def _name(text: Any, category: Any) -> tuple[str, int]:
    return text, category


def _read(
    document: Mapping[str, Any], make: Callable[..., Row], check: Callable[[list[Row | None]], None]
) -> dict[int, Shared[Row | None]]:
    found = {}
    for number, rows in document.items():
        table = [None if row is None else make(*row) for row in rows]
        check(table)
        found[int(number)] = Shared(table)
    return found


def _numbered(tables: Iterable[list[Row]]) -> dict[int, Shared[Row]]:
    return {each.number: each for each in map(shared, tables)}


def reading(document: Mapping[str, Any], tables: SharedTables) -> Reading:
    """Decode the output of `written`. An invalid document may raise any exception."""
    header = document["header"]
    found = Reading(
        **{name: document[name] for name in _PLAIN}
        | {
            "header": header | {name: bytes.fromhex(header[name]) for name in _BYTES},
            "process": document["process"],
            "lanes": [(number, _tuples(lane), _tuples(consumer)) for number, lane, consumer in document["lanes"]],
            "names": tables.names[document["names"]],
            "paths": tables.paths[document["paths"]],
            "sites": tables.sites[document["sites"]] if "sites" in document else [],
        }
        | {name: packed(document[name]) for name in _ARRAYS}
    )
    return copy_checks.reading(found)


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def packed_text(packed: _reader.Packed) -> str:
    """Encode packed summaries as a JSON string without escapes; "" if there are no summaries."""
    return f'"{b2a_base64(packed.form(), newline=False).decode("ascii")}"'


def packed(text: str) -> _reader.Packed:
    """Decode the output of `packed_text`; raise a ValueError if it is invalid."""
    return _reader.Packed.of(a2b_base64(text, strict_mode=True))
