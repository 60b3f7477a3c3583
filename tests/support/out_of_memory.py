"""Runs the C code of the reader while allocations fail (failing_malloc.c), and measures how much memory is never freed.

Each function in `USES` first runs undisturbed. Then the function runs with its first allocation failing, then with its
second, and so on. At the end, it runs undisturbed again. The program prints the result as a line of JSON.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import rings
import tapes
from checked_record import NUMBERS, CheckedRecord, Tensor

from brickd.shm import _reader

_SITES, _STEPS, _RUNS = 5, 12, 8
_LIMIT = 500  # the most allocations of one use
_SPAN = rings.spans({"path": 0, "duration": 5})
_SPANS = rings.spans(*({"path": 0, "start": n, "duration": 100 + n} for n in range(12)))
_EVENTS = rings.events(*({"id": n, "path": 0} for n in range(8)))


def _checked(worker: int) -> bytes:
    records = [
        CheckedRecord(
            Tensor(step + (worker == 2 and site == 3), nan=worker == 1 and site == 2), (Tensor(7 + step),),
            site=site, step=step, ticks=step * _SITES + site, flags=_reader.CHECKED_STEP, position=worker % 2,
        )
        for step in range(_STEPS)
        for site in range(_SITES)
    ]  # fmt: skip
    return b"".join(each.slots() for each in (*records, replace(records[0], flags=_reader.CHECKED_WEIGHT)))


_CHECKED = [_checked(worker) for worker in range(3)]


def _fingerprints() -> object:
    """Compare fingerprints of workers that differ, and find where NaN began."""
    held = _reader.Fingerprints(1 << 20, True)
    found: list[object] = []
    for worker, records in enumerate(_CHECKED):
        found += [held.add(worker, 0, 0, NUMBERS, NUMBERS, records, True), held.unlike()]
    found += [held.births(), held.counts(), held.unlike(), held.read(1), held.group(1), held.rounded(0, 1)]
    part, numbers = held.select([0, 1, 2], [0, 1, 2], [0, 0, 0])
    found += [numbers, part.counts()]
    for by_input in (False, True):
        found.append(part.match([0, 1, 2], [0, 0, 0], by_input, rtol=1e-3))
    held.mute([2])
    held.forget(0)
    found += [held.extent(0, 0), held.births()]
    held.drop(0)
    return found


def _segment() -> object:
    with rings.rings(lanes=2) as made:
        made.path(0, _reader.UNIT_TICKS)
        made.add(0, "span", _SPAN)
        of = _reader.SegmentCopier(made.fd)
        summaries = [bytes(of.summaries(*lane)[0]) for lane in ((), (0,))]
        tables = of.names(), of.paths(), of.sites(), of.lanes(), summaries, of.ring(0, False)
        return of.header(), of.process(), of.control(), of.extent(), of.sums(), tables


def _drained() -> object:
    """Drain the spans and the events of two lanes into details and into a spool. Read all results, and publish the
    tails.
    """
    with rings.rings(lanes=2) as made:
        made.path(0, _reader.UNIT_TICKS)
        for lane in range(2):
            made.add(lane, "span", _SPANS)
            made.add(lane, "event", _EVENTS)
        drain, spool = made.drain(), _reader.Spool(1 << 20, True, True)
        drain.record_into(spool, 1)
        found: list[object] = [_reader.drain([drain]), drain.longest(), drain.recent(), drain.cursors()]
        found += [_reader.tails([drain], True), spool.ready(), spool.refused_slots]
        drain.record_into(None)
        drain.forget_details()
        spool.end()
        again = made.drain(drain.cursors())
        again.salvage()
        return [*found, again.cursors()]


def _recorded() -> object:
    """Write drained records into a file."""
    with rings.rings(lanes=1) as made, tapes.memory() as fd:
        made.add(0, "span", _SPANS)
        drain, recording, spool = made.drain(), tapes.begin(fd), _reader.Spool()
        drain.record_into(spool)
        _reader.drain([drain])
        tapes.flush(recording, spool)
        recording.close()
        return recording.bytes


def _refused() -> object:
    """Set cursors for more lanes than exist."""
    with rings.rings(lanes=2) as made:
        try:
            made.drain([(0, 0, 0, 0, 0)] * 3)
        except ValueError as error:
            if "no memory" in str(error):
                raise
            return str(error)
    return None


USES = {
    "fingerprints": _fingerprints,
    "segment": _segment,
    "drained": _drained,
    "recorded": _recorded,
    "refused": _refused,
}


def _range(library: str) -> tuple[int, int]:
    """Return the addresses of a library's code in this process."""
    with open("/proc/self/maps") as maps:
        places = [line.split()[0].split("-") for line in maps if line.rstrip().endswith(library)]
    ends = [int(end, 16) for place in places for end in place]
    return min(ends), max(ends)


def _opened() -> int:
    """Return the number of descriptors and mapped files of this process."""
    with open("/proc/self/maps") as maps:
        return len(os.listdir("/proc/self/fd")) + sum(len(line.split()) > 5 for line in maps)


def _measured(name: str, use: Callable[[], object]) -> dict[str, Any]:
    control = ctypes.CDLL(None)
    control.allocations_watch.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    control.allocations_held.restype = ctypes.c_size_t

    def held() -> int:
        gc.collect()
        return int(control.allocations_held())

    gc.freeze()  # exclude existing objects, so that the collector examines only objects that `use` creates
    first = repr(use())
    control.allocations_watch(*_range(_reader.__file__))
    use()
    before, opened, kept = held(), _opened(), 0
    tracemalloc.start()
    python = []
    for _ in range(_RUNS):
        use()
        kept = max(kept, held() - before)
        python.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    failures = without = 0
    for at in range(1, _LIMIT):
        control.allocations_fail(at)
        try:
            use()
        except MemoryError:
            without += 1
        except ValueError as error:
            if "no memory" not in str(error):
                raise
            without += 1
        came = control.allocations_failed()
        control.allocations_fail(0)
        kept = max(kept, held() - before)
        if not came:
            break
        failures += 1
    control.allocations_watch(0, 0)
    return {
        "use": name,
        "same": repr(use()) == first,
        "failures": failures,
        "without_memory": without,
        "blocks_kept": kept,
        "opened_kept": _opened() - opened,
        "python_bytes_each": (python[-1] - python[1]) // (_RUNS - 2),
    }


if __name__ == "__main__":
    print(json.dumps(_measured(sys.argv[1], USES[sys.argv[1]])), flush=True)
    os._exit(0)
