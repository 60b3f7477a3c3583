"""Pairs of LTTng-UST tracepoints from C, recorded by a session of their own.

A disabled tracepoint costs nothing, and a tracepoint whose buffer is full costs little. So the trace is read at the
end, and must contain every event. `lttng_daemon` was started before this process.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.method import Case
from benchmarks.peers import needs

BY = "LTTng-UST"
PAIR = "tracepoint pair in C"
OF_TASK = "tracepoint pair in C, vpid, vtid"
HOW = {
    PAIR: "begin and end, recorded by a live session; CLOCK_MONOTONIC",
    OF_TASK: "the same with process and thread, which are needed to distinguish spans of several threads",
}
TOOLS = ("lttng", "lttng-sessiond", "gcc", "setpriv")
HOME, LOG = "LTTNG_HOME", "lttng-sessiond.log"

_DEBIAN = "Debian: liblttng-ust-dev lttng-tools"
_SOURCE = Path(__file__).with_name("lttng.c")
_MARK = 0x9E3779B97F4A7C15  # a number that each event contains once, so that events can be counted
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", f"-DMARK=UINT64_C({_MARK:#x})", f"-I{_SOURCE.parent}")
_BUFFERS = ("--subbuf-size=512K", "--num-subbuf=4")  # the size of one processor's buffers; a batch fills 150 KiB
_CHANNELS = (("bare", "brickd_bench:begin,brickd_bench:end", ()), ("task", "brickd_bench:task_*", ("vpid", "vtid")))
# the header of a CTF packet: magic, uuid, stream, instance, begin, end, number of bits of the content, number of all
# bits
_PACKET = struct.Struct("<I16sIQQQQQ")
_MAGIC = 0xC1FC1FC1


class _Session:
    """A session with a channel for each case; its trace can be read after it has stopped."""

    def __init__(self, trace: Path) -> None:
        self._name = trace.name
        self._trace = trace
        self._streams: dict[str, int] = {}
        here = ("--userspace", f"--session={self._name}")
        commands: list[tuple[str, ...]] = [("create", self._name, f"--output={trace}")]
        for channel, events, contexts in _CHANNELS:
            commands += [
                ("enable-channel", *here, *_BUFFERS, channel),
                ("enable-event", *here, f"--channel={channel}", events),
                *(("add-context", *here, f"--channel={channel}", f"--type={context}") for context in contexts),
            ]
        for command in (*commands, ("start", self._name)):
            if problem := _lttng(*command):
                raise needs.AbsentError(problem)

    def pairs(self, channel: str) -> int:
        """End the session, and return the number of pairs in the channel."""
        if not self._streams:
            _lttng("stop", self._name)
            self._streams = {name: _events(self._trace, name) for name, _, _ in _CHANNELS}
            _lttng("destroy", self._name)
            shutil.rmtree(self._trace)
        return self._streams[channel] // 2


def _lttng(*arguments: str) -> str:
    """Run lttng; returns its error, or ""."""
    done = subprocess.run(["lttng", "--no-sessiond", *arguments], capture_output=True, text=True, check=False)
    output = " ".join((done.stderr or done.stdout).split())
    return "" if done.returncode == 0 else f"lttng {arguments[0]}: exit status {done.returncode}: {output}"


def cases(folder: Path) -> list[Case]:
    """Return two cases: a span as two events, and a span as two events that also have their process and thread."""
    for name in TOOLS:
        needs.tool(name, _DEBIAN)
    if HOME not in os.environ:
        output = (folder / LOG).read_text().strip().splitlines() or ["it printed nothing"]
        raise needs.AbsentError(f"lttng-sessiond did not start: {output[-1]}")
    session = _Session(folder / f"brickd-bench-{os.getpid()}")
    # Load the library only now: its constructor registers this process with the daemon and waits until the events are
    # on.
    events = needs.library(folder / "liblttng_events.so", ("gcc", *_FLAGS, _SOURCE, "-llttng-ust", "-ldl"), _DEBIAN)
    return [
        Case(PAIR, native=needs.loop(events.batch), recorded=lambda: session.pairs("bare")),
        Case(OF_TASK, native=needs.loop(events.batch_of_task), recorded=lambda: session.pairs("task")),
    ]


def _events(trace: Path, channel: str) -> int:
    return sum(marks(file) for file in trace.rglob(f"{channel}_*") if file.suffix != ".idx")


def marks(stream: Path) -> int:
    """Return the number of this benchmark's events in a stream of a trace."""
    if stream.stat().st_size == 0:
        return 0
    with stream.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return sum(data[begin:end].count(struct.pack("<Q", _MARK)) for begin, end in _packets(data))


def _packets(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Yield the content of each packet. The padding after it is left out, because it may be older data."""
    at = 0
    while at + _PACKET.size <= len(data):
        magic, _, _, _, _, _, content_bits, bits = _PACKET.unpack_from(data, at)
        if magic != _MAGIC or not 0 < content_bits <= bits:
            return  # the events of an invalid packet count as not recorded
        yield at, at + content_bits // 8
        at += bits // 8
