"""Runs programs that record checksums, and reads their rings."""

from __future__ import annotations

from typing import Any, NamedTuple

from conftest import Worker, reading
from epochs import give
from faults import Start
from recorded import Site, events, sites

from brickd.shm.ledger import ledger_of
from brickd.shm.segment_copy import Reading

NUMBERS = """
import numpy as np
x = np.arange(12, dtype="f").reshape(3, 4)
y = 2 * x
def fingerprint_fields(f):
    counts = [f.nan, f.pos_inf, f.neg_inf]
    return [f.checksum, f.fnv1a, f.dtype, f.elements, *counts, f.min, f.max, f.mean, f.l2, *f.sketch]
def key():
    with open(os.environ["BRICKD_STATE_DIR"] + "/key") as file:
        return int(file.read(32), 16)
"""
UNSEEN = """
class Watched:
    def __dlpack__(self, **_):
        raise SystemExit("looked at")
    __dlpack_device__ = __dlpack__
"""
DTYPES = {2: "int8", 12: "float32", 13: "float64"}


class Left(NamedTuple):
    """What a program left behind after its work: the reading of its segment, its events, its sites and its report."""

    reading: Reading
    events: list[dict[str, Any]]
    sites: list[Site | None]
    reported: Any


def recorded(worker: Start, prefix: str, source: str, **environment: str) -> Left:
    return _left(worker(_whole(source), **environment), prefix)


def recorded_in(epoch: int, worker: Start, prefix: str, source: str, **environment: str) -> Left:
    """Run a program in a given epoch; return what it recorded."""
    process = worker("brick.init()\npause()\n" + _whole(source), **environment)
    process.paused()
    give(reading(prefix).file, epoch)
    process.go()
    return _left(process, prefix)


def _whole(source: str) -> str:
    return NUMBERS + "reported = None\n" + source + "\nreport(reported)\npause()\n"


def _left(process: Worker, prefix: str) -> Left:
    reported = process.next_report()
    process.paused()
    got = reading(prefix)
    result = Left(got, events(got), sites(got), reported)
    process.go()
    assert process.end() == 0, process.stderr
    return result


def places(known: list[Site | None], found: list[dict[str, Any]]) -> list[tuple[str, int, int, int]]:
    """Return the kernel, the layer, the step and the position of each checksum."""
    result = []
    for each in found:
        site = known[each["site"]]
        assert site is not None
        result.append((*site[:2], each["step"], each["position"]))
    return result


def lost(of: Reading) -> int:
    return int(ledger_of(of).document()["events"]["dropped"].get("checked", 0))
