"""Names, paths and sites whose hashes collide. Each of them gets one index, in whatever order they come."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from conftest import ROOT, Worker, reading
from faults import NATIVE, Compile, Start, counts, native, program, record

from brickd.shm.segment_copy import CallPath

ROOM = {"BRICKD_NAMES": "64", "BRICKD_PATHS": "64", "BRICKD_SITES": "64"}
# the sizes of the hash tables: 2 x names; 4 x paths + 2 x sites, rounded up to a power of two
PLACES = {"names": 128, "entries": 512}
U64 = 2**64


def place_of_name(name: str) -> int:
    """Return the first place at which writer/intern.c looks for a name, from its FNV-1a hash."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % U64
    return value % PLACES["names"]


def place_of_key(key: int) -> int:
    """Return the first place at which brick_entry_place looks for a path or a site."""
    return (key * 0x9E3779B97F4A7C15 % U64) // (U64 // PLACES["entries"])


def names_at(place: int, count: int) -> list[str]:
    """Return the first names whose search begins at a place."""
    return [*itertools.islice((name for n in itertools.count() if place_of_name(name := f"n{n}") == place), count)]


@contextmanager
def interner(compiled: Compile) -> Iterator[Worker]:
    with native(program(compiled, "interned"), **ROOM) as process:
        yield process


def order(process: Worker, text: str) -> int:
    assert process.process.stdin is not None
    process.process.stdin.write(f"{text}\n".encode())
    process.process.stdin.flush()
    return int(process.next_report())


@pytest.mark.parametrize("place", [7, pytest.param(126, marks=pytest.mark.ci)])
def test_colliding_names_each_have_a_stable_number(compiled: Compile, prefix: str, place: int) -> None:
    """A search that reaches the end of the table continues at its beginning. There, such names displace other names."""
    chain = [name for at in (place, (place + 2) % 128, (place + 1) % 128, place) for name in names_at(at, 4)]
    names = [*dict.fromkeys(chain)]
    assert len(names) == 12
    with interner(compiled) as process:
        numbers = {name: order(process, f"n{name}") for name in names}
        assert len(set(numbers.values())) == len(names)
        for again in (reversed(names), sorted(names), names):
            assert {name: order(process, f"n{name}") for name in again} == numbers
        got = reading(prefix)
    assert {name: got.name(number) for name, number in numbers.items()} == {name: name for name in names}
    assert got.process["names"] == 2 + len(names), 'the table also has the names "other" and "brick"'
    assert got.process["names_refused"] == 0


def key_of(layer: int, above: int) -> int:
    """Return the key of name 1 in a layer."""
    return 1 << 63 | (layer + 1) << 32 | 1 << 16 | above


def layers_at(place: int, above: int) -> list[int]:
    """Return the first layers in which the search for name 1 begins at this place of the table, or at one of the next
    two places.
    """
    at = {(place + further) % PLACES["entries"] for further in range(3)}
    return [*itertools.islice((n for n in itertools.count() if place_of_key(key_of(n, above)) in at), 12)]


@pytest.mark.parametrize("place", [7, 510])
def test_colliding_paths_each_have_a_stable_number(compiled: Compile, prefix: str, place: int) -> None:
    layers = layers_at(place, above=0xFFFF)
    with interner(compiled) as process:
        assert order(process, "nbrick") == 1
        for again in (layers, reversed(layers), layers):
            for layer in again:
                order(process, f"l{layer}")
        got = reading(prefix)
    paths = [path for path in got.paths if path is not None]
    assert paths == [CallPath(-1, 0, -1, 0), *(CallPath(-1, 1, layer, 0) for layer in layers)]
    assert (got.process["paths"], counts(got)) == (1 + len(layers), {"brick": 3 * len(layers)})


@pytest.mark.parametrize("place", [7, 510])
def test_colliding_sites_each_have_a_stable_number(worker: Start, prefix: str, place: int) -> None:
    layers = layers_at(place, above=0x7F << 56)
    numbered = f"""
        brick.init(names=64, paths=64, sites=64)
        for again in ({layers}, {layers[::-1]}, {layers}):
            for layer in again:
                brick.checksum("kernel", bytes(64), layer=layer)
        """
    got = record(worker, prefix, numbered)
    assert got.name(1) == "kernel"
    assert [(site.name, site.layer) for site in got.sites if site is not None] == [(1, layer) for layer in layers]
    assert got.process["sites"] == len(layers)


# ---- another thread interferes

READY, VOID = 1 << 31, 1 << 30
ROOT_KEY = 0xFFFF


class Tables:
    """The tables of names and paths in this process. At each of the named points in their code, `at` is called."""

    def __init__(self, library: os.PathLike[str]) -> None:
        self._native = ctypes.CDLL(os.fspath(library))
        for name in ("path", "claim"):
            getattr(self._native, f"tables_{name}").restype = ctypes.c_uint64

    def name(self, text: str) -> int:
        return int(self._native.tables_name(text.encode()))

    def word(self, number: int) -> int:
        return int(self._native.tables_word(number)) % 2**32

    def path(self, key: int) -> int:
        return int(self._native.tables_path(ctypes.c_uint64(key)))

    def claim(self, key: int) -> int:
        return int(self._native.tables_claim(ctypes.c_uint64(key)))

    def begin(self, at: Callable[[str], None] = lambda _: None) -> None:
        self._at = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(lambda name: at(name.decode()))
        assert self._native.tables_begin(64, 64, self._at)

    def publish(self, at: int, key: int, number: int) -> None:
        self._native.tables_publish(ctypes.c_uint64(at), ctypes.c_uint64(key), ctypes.c_uint64(number))


@pytest.fixture
def tables(compiled: Compile) -> Tables:
    sources = (NATIVE / "tables.c", *(ROOT / "agent" / "src" / "writer" / name for name in ("intern.c", "sensitive.c")))
    return Tables(compiled("tables.so", sources, "-shared", "-fPIC", "-DBRICK_TEST_POINTS"))


@pytest.mark.ci
@pytest.mark.parametrize("same", [True, pytest.param(False, marks=pytest.mark.ci)])
@pytest.mark.parametrize("behind", [0, 1, 3])
def test_colliding_names_written_concurrently_have_one_number_each(tables: Tables, behind: int, same: bool) -> None:
    *others, name, another = names_at(126, behind + 2)
    armed, came = False, -1

    def meanwhile(point: str) -> None:
        nonlocal armed, came
        if armed and point == "name_text":
            armed = False
            came = tables.name(name if same else another)

    tables.begin(meanwhile)
    numbers = {each: tables.name(each) for each in others}
    armed = True
    numbers |= {name: tables.name(name)}
    assert (numbers[name] == came) == same
    if same:  # the entry of the interrupted call stays unused
        assert (tables.word(came), tables.word(came - 1)) == (READY | len(name), READY | VOID)
    else:
        numbers |= {another: came}
    assert {each: tables.name(each) for each in numbers} == numbers
    assert len(set(numbers.values())) == len(numbers)


@pytest.mark.parametrize("place", [7, 510])
def test_paths_behind_one_not_yet_published_by_another_thread_are_found(tables: Tables, place: int) -> None:
    tables.begin()
    *others, pending = (key_of(layer, ROOT_KEY) for layer in layers_at(place, ROOT_KEY)[:6])
    before = {key: tables.path(key) for key in others[:2]}
    at = tables.claim(pending)
    after = {key: tables.path(key) for key in others[2:]}
    numbers = before | after
    assert sorted(numbers.values()) == [1, 2, 3, 4, 5], "each name has one number"
    assert {key: tables.path(key) for key in others} == numbers
    twice = tables.path(pending)
    assert twice == 6, "threads do not wait for each other, so one path may get two numbers"
    tables.publish(at, pending, 60)
    assert tables.path(pending) in (60, twice)
    assert {key: tables.path(key) for key in others} == numbers


def test_a_path_with_an_unassigned_name_is_other(tables: Tables) -> None:
    tables.begin()
    assert tables.path(key_of(0, ROOT_KEY)) == 1
    assert tables.path(1 << 63 | 63 << 16 | ROOT_KEY) == 2, "63 is the highest number in a table of 64"
    assert tables.path(1 << 63 | 64 << 16 | ROOT_KEY) == 0
