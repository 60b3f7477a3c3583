"""`brickd source` shows the texts of kernels that workers send, while daemons start and end."""

from __future__ import annotations

import itertools
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Worker, reading
from faults import Compile, Start
from killed_daemon import dying_daemon
from running import BRICKD, going, running, until
from sandbox import apart
from source_pieces import fnv1a
from test_record import recording
from verbs import brickd, document

from brickd.base.paths import runtime
from brickd.model.kernel_sources.assembly import KernelSource
from brickd.model.kernel_sources.files import Filed
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.losses import losses
from brickd.state import checkpoint
from brickd.state.daemon_state import Memory

MEBIBYTE = 1 << 20
TOO_LONG = "longer than 1,048,576 bytes, or too many sources waited to be sent"

# Sends a part of a source each time that the test lets it continue; reports whether the whole source is sent.
SENDS = """
text = {text}
ptx = brick.source(text, name="gemm", path="gemm.ptx")
with brick.span("ffn"):
    brick.kernel("gemm_kernel", 16, 256, source=ptx)
report(ptx.text is None)
while os.read(0, 1):
    ptx.uses = 0  # as if it were used twice as often
    ptx.send()
    report(ptx.text is None)
"""


def text_of(length: int) -> bytes:
    return b"0123456789abcdefghijklmnopqrstuvwxyz\n" * (length // 37) + b"z" * (length % 37)


def sender(worker: Start, length: int, **environment: str) -> Worker:
    """Start a worker that has sent as much of its source as its ring has room for."""
    source = f'"0123456789abcdefghijklmnopqrstuvwxyz\\n" * {length // 37} + "z" * {length % 37}'
    process: Worker = worker(SENDS.format(text=source), **({"BRICKD_SERVICE": "api"} | environment))
    process.next_report()
    return process


def more(process: Worker) -> bool:
    """Let the worker send more; return whether everything is sent."""
    process.go()
    return bool(process.next_report())


def raw(*arguments: str) -> tuple[int, bytes, str]:
    """Return the exit code of a verb, its output in bytes, and its messages."""
    with going(*arguments) as process:
        text, words = process.communicate()
        return process.wait(), text, words.decode()


def shown(hash_: int, *arguments: str) -> bytes:
    """Return the text of a source as `brickd source` prints it."""
    code, text, words = raw("source", *arguments, f"{hash_:016x}")
    assert code == 0, words
    return text


def until_known(daemon: Any, known: int = 1) -> None:
    """Wait until the texts of this number of sources are known."""
    daemon.once("/source", lambda answer: sum(each["known"] for each in answer["sources"]) == known)


# ---- from workers


@pytest.mark.ci
@pytest.mark.parametrize(
    "length", [0, 41, *(pytest.param(length, marks=pytest.mark.ci) for length in (1, 39, 40, 100_000))]
)
def test_a_source_is_printed_unchanged_with_and_without_a_daemon(worker: Start, length: int) -> None:
    process, text = sender(worker, length), text_of(length)
    known = fnv1a(text)
    assert shown(known) == text, "the text comes from the ring"
    with running() as daemon:
        until_known(daemon)
        assert shown(known) == text
        process.kill()
        daemon.end()
    assert shown(known) == text, "the text comes from the file"
    (entry,) = document("source")["sources"]
    assert (entry["name"], entry["path"], entry["size_bytes"]) == ("gemm", "gemm.ptx", length)
    assert (entry["kernels"], entry["workers"]) == ([{"name": "gemm_kernel", "launches": 1}], ["api/0"])


@pytest.mark.ci
def test_the_longest_source_is_sent_in_parts_and_a_daemon_may_start_late(worker: Start) -> None:
    process, text = sender(worker, MEBIBYTE), text_of(MEBIBYTE)
    known = _reader.source_hash(text)
    assert not more(process), "the ring is full, and no process reads it"
    missing = brickd("source", f"{known:016x}")
    assert (missing.returncode, missing.stdout) == (4, "")
    assert missing.stderr.endswith("pieces of the text arrived, but not the last piece\n")
    with running() as daemon:
        until(lambda: more(process))
        until_known(daemon)
        assert shown(known) == text
        daemon.end()
    assert shown(known) == text
    assert not losses(*_account(process))


def _account(process: Worker) -> tuple[Any, Any]:
    got = reading(os.environ["BRICKD_SHM_PREFIX"])
    return got, ledger_of(got)


def test_a_source_that_is_too_long_is_counted_without_blaming_a_ring(worker: Start) -> None:
    process, text = sender(worker, MEBIBYTE + 1), text_of(MEBIBYTE + 1)
    (loss,) = losses(*_account(process))
    assert (loss.kind, str(loss)) == ("sources", f"1 source not sent: {TOO_LONG}")
    missing = brickd("source", f"{_reader.source_hash(text):016x}")
    assert missing.returncode == 4
    assert missing.stderr.endswith("kernels refer to this source, but no worker has sent the text yet\n")


@pytest.mark.ci
def test_a_full_ring_delays_a_source_and_loses_nothing(worker: Start) -> None:
    process = worker(
        """
kernel = brick.brick("kernel")
for _ in range(5_000):
    kernel.defer()
ptx = brick.source("text" * 100)
brick.kernel("k", 1, 1, source=ptx)
report(ptx.text is None)
os.read(0, 1)
brick.finalize()
ptx.uses = 0
ptx.send()
report(ptx.text is None)
pause()
"""
    )
    assert process.next_report() is False
    known = fnv1a(b"text" * 100)
    with running() as daemon:
        daemon.once("/status", lambda answer: answer["ledger"]["events"]["in_ring"] == 0)
        process.go()
        assert process.next_report() is True
        until_known(daemon)
        assert shown(known) == b"text" * 100
        terms = daemon.once("/status", lambda answer: answer["ledger"]["deferred"]["pending"] == 0)["ledger"]
        assert terms["deferred"]["started"] + terms["events"]["dropped"].get("defer", 0) == 5_000


@pytest.mark.ci
def test_eight_workers_with_one_source_have_one_file(worker: Start) -> None:
    for number in range(8):
        sender(worker, 30_000, BRICKD_SERVICE="api", BRICKD_WORKER=str(number))
    with running() as daemon:
        until_known(daemon)
        daemon.once("/status", lambda answer: answer["ledger"]["events"]["in_ring"] == 0)
        (entry,) = document("source")["sources"]
        assert (entry["workers"], entry["launches"]) == ([f"api/{n}" for n in range(8)], 8)
        assert entry["differing"] == 0
    assert [path.name for path in runtime().sources.iterdir()] == [entry["hash"]]


@pytest.mark.ci
def test_a_child_forked_while_a_source_is_sent_sends_it_too(worker: Start) -> None:
    process = worker(
        SENDS.format(text=f"'x' * {MEBIBYTE // 2}").replace(
            "while os.read", "if os.fork(): os.wait(); pause()\nwhile os.read"
        )
    )
    assert process.next_report() is False
    known = _reader.source_hash(b"x" * (MEBIBYTE // 2))
    with running() as daemon:
        until(lambda: more(process))
        until_known(daemon)
        assert shown(known) == b"x" * (MEBIBYTE // 2)


# ---- daemons die

KILLS = ("kill-before", "kill-after", "kill-half")


@pytest.mark.slow
def test_daemons_killed_at_any_step_lose_no_source(worker: Start, prefix: str, compiled: Compile) -> None:
    checkpoint.save(runtime().checkpoint, checkpoint.encode(Memory(prefix)))
    # After each part, the worker also defers and finalizes work, so that daemons have something to read.
    busy = SENDS.replace("    ptx.send()\n", "    ptx.send()\n    brick.brick('k').defer()\n    brick.finalize()\n")
    process = worker(busy.format(text=f"'x' * {MEBIBYTE}"), BRICKD_SERVICE="api")
    process.next_report()
    events: list[str] = []
    effects = set()
    for number in range(1, 22):
        with dying_daemon(compiled, f"{KILLS[number % 3]}:{number}") as daemon:
            while daemon.process.poll() is None:
                more(process)
            daemon.over()
        events += daemon.events
        effects |= {effect for effect, _ in daemon.effects}
    assert {"write", "rename", "pwrite", "lock"} <= effects
    known = _reader.source_hash(b"x" * MEBIBYTE)
    with running() as last:
        until(lambda: more(process))
        until_known(last)
        assert shown(known) == b"x" * MEBIBYTE
        (entry,) = document("source")["sources"]
        assert (entry["differing"], entry["pieces"]) == (0, None)
    assert {event.partition(":")[0] for event in events} <= {"daemon_started", "worker_found", "problem"}
    (only,) = runtime().sources.iterdir()
    assert only.name == f"{known:016x}"


@pytest.mark.ci
@pytest.mark.parametrize("kill", KILLS)
def test_a_daemon_killed_while_writing_a_source_leaves_it_to_the_next(
    worker: Start, prefix: str, compiled: Compile, kill: str
) -> None:
    checkpoint.save(runtime().checkpoint, checkpoint.encode(Memory(prefix)))
    sender(worker, 50_000)
    known = fnv1a(text_of(50_000))
    with dying_daemon(compiled, f"{kill}:1", "rename") as daemon:
        daemon.over()
    assert any(path.parent == runtime().sources for _, path in daemon.effects)
    with running() as last:
        until_known(last)
        assert shown(known) == text_of(50_000)
        assert [path.name for path in runtime().sources.iterdir()] == [f"{known:016x}"]


# ---- recordings


@pytest.mark.ci
@pytest.mark.parametrize("by", ["with a daemon", pytest.param("without a daemon", marks=pytest.mark.ci)])
def test_a_recording_has_the_sources_sent_before_it_began(worker: Start, tmp_path: Path, by: str) -> None:
    process, file, known = sender(worker, 5_000), str(tmp_path / "run.brick"), fnv1a(text_of(5_000))
    with running() as daemon:
        until_known(daemon)
        if by == "without a daemon":
            daemon.end()
        assert brickd("record", "-o", file, "--duration", "0.05").returncode == 0
    process.kill()
    with apart():  # another prefix and directory, as on another machine
        assert shown(known, file) == text_of(5_000)
        (entry,) = document("source", file)["sources"]
    assert (entry["name"], entry["path"], entry["workers"]) == ("gemm", "gemm.ptx", ["api/0"])


@pytest.mark.ci
def test_a_recording_has_the_sources_sent_while_it_is_made(worker: Start, tmp_path: Path) -> None:
    process = worker(
        'brick.init()\npause()\nbrick.kernel("k", 1, 1, source=brick.source("late"))\npause()', BRICKD_SERVICE="api"
    )
    process.paused()
    file = str(tmp_path / "run.brick")
    with running() as daemon, recording("-o", file, "--until-exit") as recorder:
        assert daemon.ask("/source")["sources"] == []
        process.go()
        process.paused()
        until_known(daemon)
        process.go()
        assert process.end() == 0, process.stderr
        assert recorder.wait() == 0
    assert shown(fnv1a(b"late"), file) == b"late"


@pytest.mark.ci
def test_a_redacted_recording_has_no_sources_and_reports_it(worker: Start, tmp_path: Path) -> None:
    sender(worker, 5_000)
    file, known = str(tmp_path / "run.brick"), fnv1a(text_of(5_000))
    with running() as daemon:
        until_known(daemon)
        assert brickd("record", "--redact", "-o", file, "--duration", "0.05").returncode == 0
    assert text_of(40) not in Path(file).read_bytes()
    missing = brickd("source", file, f"{known:016x}")
    assert (missing.returncode, missing.stdout) == (4, "")
    assert "texts of kernels are omitted" in brickd("source", file).stderr


# ---- the verb

TEXTS = {"gemm": b"one", "norm\x1b[31m": b"\x1b]0;owned\x07 two\ttabs\n\xff three\n", "": b"no end of line"}


@pytest.fixture
def filed(prefix: str) -> dict[str, int]:
    """Put sources into a daemon's files; return the hashes, keyed by the names of the sources."""
    shelf = Filed(runtime().sources)
    for name, text in TEXTS.items():
        shelf.write(KernelSource(fnv1a(text), name, f"/src/{name}", text))
    return {name: fnv1a(text) for name, text in TEXTS.items()}


def test_a_source_is_piped_byte_for_byte(filed: dict[str, int]) -> None:
    for name, known in filed.items():
        assert raw("source", f"{known:016x}") == (0, TEXTS[name], "")
        assert document("source", f"{known:016x}")["text"].encode("utf-8", "surrogateescape") == TEXTS[name]


@pytest.mark.usefixtures("daemon")
def test_a_daemon_returns_a_source_byte_for_byte(filed: dict[str, int]) -> None:
    for name, known in filed.items():
        assert raw("source", f"{known:016x}") == (0, TEXTS[name], "")


@pytest.mark.ci
def test_a_source_is_escaped_on_a_terminal(filed: dict[str, int]) -> None:
    ours, its = pty.openpty()
    known = filed["norm\x1b[31m"]
    with subprocess.Popen([*BRICKD, "source", f"{known:016x}"], stdout=its) as process:
        os.close(its)
        assert process.wait() == 0
    with open(ours, "rb") as terminal:
        reported = os.read(terminal.fileno(), 10_000)
    assert reported == b"\\x1b]0;owned\\x07 two    tabs\r\n\\udcff three\r\n"


@pytest.mark.parametrize("given", [lambda h: h[:6], lambda h: h.upper(), lambda h: f"@{h}", lambda h: f"0x{h}"])
def test_a_unique_prefix_of_a_hash_is_enough(filed: dict[str, int], given: Callable[[str], str]) -> None:
    assert raw("source", given(f"{filed['gemm']:016x}"))[1] == b"one"


def test_an_unknown_hash_exits_4_and_an_ambiguous_one_exits_2(prefix: str) -> None:
    shelf = Filed(runtime().sources)
    every = sorted((f"{fnv1a(b'%d' % n):016x}", b"%d" % n) for n in range(40))
    for hash_, text in every:
        shelf.write(KernelSource(int(hash_, 16), "", "", text))
    first = next(one[:1] for (one, _), (other, _) in itertools.pairwise(every) if one[0] == other[0])
    some = brickd("source", first)
    assert (some.returncode, some.stdout) == (2, "")
    assert some.stderr.startswith(f"brickd: source {first} is not unique: ")
    assert some.stderr.endswith(": give more digits of its hash\n")
    for nothing in ("xyz", "0" * 17, "@"):
        none = brickd("source", nothing)
        assert (none.returncode, none.stdout) == (4, "")
        assert none.stderr.startswith(f"brickd: no source {nothing}: ")


def test_without_sources_the_list_reports_that(prefix: str) -> None:
    assert brickd("source").stdout.startswith("no sources: ")
    assert document("source")["sources"] == []
    assert brickd("source", "-o", "csv").stdout == ""


def test_the_list_is_escaped_and_in_every_format(filed: dict[str, int]) -> None:
    lines = brickd("source").stdout.splitlines()
    assert lines[0].split() == ["SOURCE", "SIZE", "LAUNCHES", "KERNELS", "WORKERS", "NAME", "PATH"]
    assert all(line.isprintable() for line in lines)
    answer = document("source")
    assert {entry["hash"] for entry in answer["sources"]} == {f"{known:016x}" for known in filed.values()}
    rows = [json.loads(line) for line in brickd("source", "-o", "jsonl").stdout.splitlines()]
    assert rows == answer["sources"]
    assert list(answer) == ["schema_version", "source", "hash", "text", "sources", "not_kept"]
    assert list(rows[0]) == [
        "hash", "name", "path", "size_bytes", "known", "lacking", "pieces", "pieces_wanted", "differing", "launches",
        "kernels", "workers",
    ]  # fmt: skip


def test_a_long_list_counts_sources_without_a_kernel(worker: Start) -> None:
    shelf = Filed(runtime().sources)
    for number in range(30):
        text = f"text {number}".encode()
        shelf.write(KernelSource(fnv1a(text), "", "", text))
    worker('brick.kernel("k", 1, 1, source="text 7")\npause()').paused()
    lines = brickd("source").stdout.splitlines()
    assert lines[1].split()[:3] == [f"{fnv1a(b'text 7'):016x}", "6B", "1"]
    assert (len(lines), lines[-1]) == (1 + 1 + 10 + 1, "…19 more that no kernel refers to")
    assert len(document("source")["sources"]) == 30
    assert len(brickd("source", "-o", "csv").stdout.splitlines()) == 31


@pytest.mark.ci
def test_tab_completes_hashes(filed: dict[str, int]) -> None:
    known = f"{filed['gemm']:016x}"
    environment = {"COMP_WORDS": f"brickd source {known[:3]}", "COMP_CWORD": "2", "_BRICKD_COMPLETE": "bash_complete"}
    offered = subprocess.run(
        [sys.executable, "-P", "-m", "brickd"], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    assert f"plain,{known}" in offered.stdout.splitlines()


@pytest.mark.ci
def test_discarded_sources_are_counted_below_the_list(worker: Start) -> None:
    process = worker(
        """
with brick.span("ffn"):
    brick.kernel("k", 1, 1, source=5)
    _core._send_source("a lie", None, None, 5, 0)
    pause()
""",
        BRICKD_SERVICE="api",
    )
    process.paused()
    with running() as daemon:
        assert daemon.until("source_refuted")["worker"] == "api/0"
        lines = brickd("source").stdout.splitlines()
        assert lines[-2:] == [
            "0000000000000005: the text that was sent does not match this hash",
            "not kept: 1 source whose text does not match its hash (brickd events)",
        ]
        assert document("source")["not_kept"]["refuted"] == 1
        assert not list(Filed(runtime().sources).hashes())


@pytest.mark.ci
def test_two_texts_with_one_hash_are_reported_in_the_list(worker: Start) -> None:
    process = worker(
        """
text = "the text"
with brick.span("ffn"):
    hash = _core._source_hash(text)
    brick.kernel("k", 1, 1, source=hash)
    _core._send_source(text, None, None, hash, 0)
    pause()
    _core._send_source("a forged text", None, None, hash, 0)
    pause()
""",
        BRICKD_SERVICE="api",
    )
    process.paused()
    known = fnv1a(b"the text")
    with running() as daemon:
        until_known(daemon)
        process.go()
        process.paused()
        event = daemon.until("source_differing")
        assert (event["worker"], event["command"]) == ("api/0", f"brickd source {known:016x}")
        assert shown(known) == b"the text"
        assert "another text with this hash was sent" in brickd("source").stdout
