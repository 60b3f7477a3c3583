"""Runs programs whose weights brickd watches, and reads their rings."""

from __future__ import annotations

import os
import textwrap
from typing import Any, NamedTuple

import forge
from conftest import SHM, reading
from faults import Start
from recorded import checked
from rings import Rings

from brickd.shm.segment_copy import Reading

WEIGHT, POSITION, STEP = 8, 1, 2

# The offsets of counters in the process line, for the default number of lanes.
PAGE = forge.empty(lanes=32)
SCANS, WATCHED = (forge.place(PAGE, "process") + forge.later("process", name) for name in ("scans", "weights"))
PROGRAM = f"""
from array import array
import numpy as np
def counter(at): return int.from_bytes(os.pread(_core._segment_fd(), 8, at), "little")
def scans(): return counter({SCANS})
def watched(): return counter({WATCHED})
def steps(until):
    while not until():
        with brick.step(None): pass
def key():
    with open(os.environ["BRICKD_STATE_DIR"] + "/key") as file:
        return int(file.read(32), 16)
def checksum(tensor): return brick.fingerprint(tensor, key=key()).checksum
def model(layers, elements=8):
    return {{f"layers.{{n}}.w": array("f", [n] * elements) for n in range(layers)}}
"""


class Record(NamedTuple):
    """The record of a weight, with its sequence number. `counted` tells whether the agent counted the generation;
    otherwise, the host gave it.
    """

    name: str
    layer: int
    position: int | None
    generation: int
    counted: bool
    checksum: str
    number: int


def found(of: Reading) -> list[Record]:
    """Return all records of weights in the rings."""
    result = []
    for (name, layer, off), each in checked(of):
        if not each["flags"] & WEIGHT:
            continue
        assert (each["relation"], each["inputs"], each["of"], each["params"], off) == (0, 0, 0, 0, False)
        position = each["position"] if each["flags"] & POSITION else None
        checksum = f"{each['tensors'][0]['checksum']:016x}"
        counted = not each["flags"] & STEP
        result.append(Record(name, layer, position, each["step"], counted, checksum, each["sequence"]))
    return result


def emptied(of: Reading) -> None:
    """Free all slots of the event rings, as a consumer does after it has read them."""
    fd = os.open(SHM / of.file, os.O_RDWR)
    try:
        page = os.pread(fd, 4096, 0)
        for number, lane, _ in of.lanes:
            Rings(fd, page).tail(number, "event", lane["event_head"])
    finally:
        os.close(fd)


class Left(NamedTuple):
    """The reading of a program's segment after its work, with its reports and its stderr."""

    reading: Reading
    records: list[Record]
    reported: Any
    stderr: str


def left_by(worker: Start, prefix: str, source: str, **environment: str) -> Left:
    process = worker(
        PROGRAM + "reported = None\n" + textwrap.dedent(source) + "\nreport(reported)\npause()\n", **environment
    )
    reported = process.next_report()
    process.paused()
    got = reading(prefix)
    records = found(got)
    process.go()
    assert process.end() == 0, process.stderr
    return Left(got, records, reported, process.stderr)
