"""`brickd weights` with workers that read their weights, while daemons start and end."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Worker
from faults import Start
from made_up_workers import HOSTILE
from replicas import MODEL
from running import Running, running
from serving import connected, rest
from test_record import recording
from verbs import brickd, document, sheet
from watched_weights import SCANS

from brickd.analysis.weights.manifest import BYTES_MAX
from brickd.base.paths import runtime
from brickd.base.units import NO_WORKERS

# The worker has three tensors; it can change one of them, and reads all of them again on request.
WATCHES = """
weights = {
    "layers.0.mlp.up.weight": array("f", [n + shift for n in range(64)]),
    "layers.1.mlp.up.weight": array("f", [1 + shift] * 8),
    "norm.weight": array("f", range(3)),
}
weights |= more
brick.weights(weights, share=1.0)
def scans(): return int.from_bytes(os.pread(_core._segment_fd(), 8, at), "little")
while True:
    report(None)
    pause()
    spoil(weights)
    before = scans()
    while steps and scans() == before:
        with brick.step(None): pass
"""


def watching(
    worker: Start, *names: str, spoil: str = "pass", shift: float = 0, more: str = "{}", steps: bool = True, **of: str
) -> list[Worker]:
    """Start workers that have read their weights once, with the same key."""
    program = "from array import array\n"
    program += f"at, shift, more, steps = {SCANS}, {shift}, {more}, {steps}\n"
    program += f"def spoil(weights): {spoil}\n" + WATCHES
    key = {"BRICKD_KEY_FILE": f"{os.environ['BRICKD_RUNTIME_DIR']}/key"}
    found = [worker(program, BRICKD_SERVICE="api", BRICKD_WORKER=name, **(key | of)) for name in names]
    for each in found:
        each.next_report()
        each.paused()
    return found


FLIP = 'memoryview(weights["layers.1.mlp.up.weight"]).cast("B").cast("I")[5] ^= 1 << 20'


def lines(*arguments: str, code: int = 0) -> list[str]:
    ended = brickd("weights", *arguments)
    assert (ended.returncode, ended.stderr) == (code, ""), ended
    return ended.stdout.splitlines()


def weights_document(*arguments: str, code: int = 0) -> dict[str, Any]:
    return document("weights", *arguments, code=code)


def settled(daemon: Running, *names: str, tensors: int = 3) -> None:
    """Wait until a daemon has compared the weights that these workers have read."""

    def is_judged(answer: Any) -> bool:
        workers = {each["worker"]: each["tensors"] for each in answer["workers"]}
        return all(workers.get(name) == tensors for name in names)

    daemon.once("/weights", is_judged)


THREE = ("0", "1", "2")


@pytest.mark.ci
def test_without_a_daemon_the_contents_of_the_rings_are_compared(worker: Start) -> None:
    watching(worker, *THREE)
    (line,) = lines()
    assert line.startswith("3 of 3 workers equal, 3 tensors, ")
    assert line.endswith(" ago")
    assert weights_document()["verdict"] == "equal"
    watching(worker, "3", shift=0.5)
    first, second, *_ = lines(code=1)
    assert first.startswith("api/3 differs in 2 of 3 tensors, first in layers.0.mlp.up.weight: relative ")
    assert second.startswith("3 of 4 workers equal, 3 tensors, ")


@pytest.mark.ci
def test_the_table_shows_worker_tensor_error_and_checksums(worker: Start) -> None:
    watching(worker, "0", "1")
    watching(worker, "2", more='{"layers.1.mlp.up.weight": array("f", [1.5] * 8)}')
    shown = lines(code=1)
    assert shown[0] == "api/2 differs in layers.1.mlp.up.weight, 1 of 3 tensors: relative error 0.5"
    assert shown[3].split() == ["WORKER", "TENSOR", "LAYER", "EXPERT", "ERROR", "CHECKSUM", "EXPECTED"]
    assert shown[4].split()[:5] == ["api/2", "layers.*.mlp.up.weight", "1", "-", "0.5"]
    (row,) = sheet("weights")
    assert (row["worker"], row["tensor"], row["why"]) == ("api/2", "layers.*.mlp.up.weight", "outlier")
    answer = weights_document(code=1)
    assert answer["differing"][0]["checksum"] == row["checksum"]
    assert answer["differing"][0]["generation"] == "0000000000000001"
    assert lines("api/0", "api/1")[0].startswith("2 of 2 workers equal")
    assert len(weights_document("--all", code=1)["tensors"]) == 4
    assert "TENSOR" in "\n".join(lines("--all", code=1))


@pytest.mark.ci
def test_of_two_against_two_all_are_reported_as_disagreeing(worker: Start) -> None:
    watching(worker, "0", "1")
    watching(worker, "2", "3", more='{"layers.1.mlp.up.weight": array("f", [1.5] * 8)}')
    answer = weights_document(code=1)
    assert answer["headlines"] == [
        "api/0 and api/1 and api/2 and api/3 disagree in layers.1.mlp.up.weight, 1 of 3 tensors"
    ]
    assert [(each["worker"], each["against"], each["why"]) for each in answer["differing"]] == [
        ("api/0", None, "disagree"),
        ("api/1", None, "disagree"),
        ("api/2", "api/0", "disagree"),
        ("api/3", "api/0", "disagree"),
    ]
    assert [line.split()[::6] for line in lines(code=1)[-4:]] == [[f"api/{n}", "-"] for n in range(4)]
    by_weights = document("diff", "api", "--by", "weights", code=1)
    assert by_weights["headlines"][0].startswith(
        "by weights: diverged: api/0, api/1, api/2 and 1 more disagree, in layers"
    )
    assert by_weights["weights"]["tensors"][0]["workers"] == [f"api/{n}" for n in range(4)]


def test_without_comparable_weights_the_reason_is_shown_and_it_exits_6(worker: Start, prefix: str) -> None:
    assert lines(code=6) == [NO_WORKERS]
    idle = worker("brick.init(); pause()", BRICKD_SERVICE="api", BRICKD_WORKER="7")
    idle.paused()
    assert lines(code=6) == [
        "nothing to compare",
        "api/7: no weights are watched (call brick.weights(model) in the engine)",
    ]
    watching(worker, "0")
    assert lines(code=6)[1] == (
        "api/0: 3 tensors not compared: no other worker holds this shard (--against MANIFEST compares with a file)"
    )


@pytest.mark.ci
def test_a_worker_with_the_weights_of_another_shard_is_reported(worker: Start) -> None:
    watching(worker, "0.tp0", "1.tp0")
    watching(worker, "0.tp1", "1.tp1", "2.tp0", shift=1)
    assert lines(code=1)[0] == (
        "api/2.tp0 has the weights of tp1 in all of its 3 tensors: it loaded the wrong shard, or reports the wrong one"
    )


def test_a_tensor_of_another_dtype_and_shape_differs(worker: Start) -> None:
    watching(worker, "0", "1")
    watching(worker, "2", more='{"norm.weight": array("d", range(4))}')
    shown = lines(code=1)
    assert shown[0] == "api/2 differs in norm.weight, 1 of 3 tensors: float64 4 and not float32 3"
    assert shown[1].startswith("2 of 3 workers equal")
    (row,) = weights_document(code=1)["differing"]
    assert [row[key] for key in ("dtype", "dtype_against", "shape", "shape_against", "relative_error")] == [
        "float64", "float32", [4], [3], None,
    ]  # fmt: skip


def test_a_missing_tensor_differs_and_has_no_checksum(worker: Start) -> None:
    watching(worker, "0", "1", more='{"scale": array("f", [1, 2])}')
    watching(worker, "2")
    shown = lines(code=1)
    assert shown[0] == "api/2 differs in scale, 1 of 4 tensors: lacks it"
    (row,) = (line.split() for line in shown if line.startswith("api/2   "))
    assert row[:-1] == ["api/2", "scale", "-", "-", "-", "-"]
    (row,) = weights_document(code=1)["differing"]
    assert [row[key] for key in ("checksum", "dtype", "dtype_against", "shape", "shape_against", "nan")] == [
        None, None, "float32", None, [2], None,
    ]  # fmt: skip
    diverged = brickd("diff", "api")
    assert diverged.returncode == 1
    assert "missing: 1 in api/2" in diverged.stdout.splitlines()
    assert diverged.stdout.splitlines()[:2] == [
        "by weights: diverged: api/2 differs from 2 that agree, in scale", "  lacks it",
    ]  # fmt: skip


def test_unreadable_tensors_are_distinguished_from_unread_ones(worker: Start) -> None:
    watching(worker, *"01", more="{'elsewhere': None, 'sparse': None}")
    answer = weights_document()
    assert [(each["tensors"], each["tensors_watched"], each["tensors_unreadable"]) for each in answer["workers"]] == [
        (3, 5, 2),
        (3, 5, 2),
    ]
    why = "2 tensors cannot be read: on a device, sparse, or of an unknown type"
    assert lines()[1:] == [f"api/0, api/1: {why}"]
    (line,) = (each for each in brickd("status").stdout.splitlines() if each.startswith("numerics"))
    assert "unseen: 4 weights that cannot be read" in line
    assert "not read yet" not in line
    by_weights = brickd("diff", "api", "--by", "weights", "--fail-on", "incomplete")
    assert by_weights.stdout.startswith("by weights: identical, api/0 and api/1: 3 tensors\n")
    assert "unseen: 4 tensors that cannot be read" in by_weights.stdout


@pytest.mark.ci
def test_different_keys_are_reported_and_not_compared(worker: Start, tmp_path: Path) -> None:
    watching(worker, "0", "1", "2")
    watching(worker, "3", BRICKD_KEY_FILE=f"{tmp_path}/another")
    shown = lines()
    assert shown[0].startswith("3 of 4 workers equal")
    assert (
        "api/3: 3 tensors not compared: the checksums are made with another key (use the same BRICKD_KEY_FILE for all"
        " workers)" in shown
    )


def test_a_hostile_tensor_name_is_escaped(worker: Start) -> None:
    for number, shift in enumerate((0, 0, 1)):
        watching(worker, str(number), more=f"{{{HOSTILE!r}: array('d', [{shift}] * 4)}}")
    shown = lines(code=1)
    assert all(line.isprintable() for line in shown)
    (row,) = sheet("weights")
    assert not row["tensor"].startswith("=")
    assert weights_document(code=1)["differing"][0]["tensor"] == HOSTILE


# ---- with a daemon


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_a_flipped_bit_is_found_and_reported_by_a_rescan(worker: Start) -> None:
    with running() as daemon:
        sound, bad = watching(worker, "0", "1"), watching(worker, "2", spoil=FLIP)
        settled(daemon, "api/0", "api/1", "api/2")
        assert weights_document()["verdict"] == "equal"
        for each in (*sound, *bad):
            each.go()
        first = lines("--rescan", code=1)[0]
        assert first == (
            "api/2 differs in layers.1.mlp.up.weight, 1 of 3 tensors: relative error 0.044, changed in place"
        )


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_weights_are_read_whatever_fingerprints_are_excluded(worker: Start) -> None:
    with running() as daemon:
        sound, bad = watching(worker, "0", "1"), watching(worker, "2", spoil=FLIP)
        settled(daemon, "api/0", "api/1", "api/2")
        assert brickd("set", "api", "--fingerprints", "off", "--sites", "no such kernel").returncode == 0
        for name in ("api/0", "api/1", "api/2"):
            daemon.once(f"/inspect/{name}", lambda of: all(site["left_out"] for site in of["sites"]))
        for each in (*sound, *bad):
            each.go()
        assert lines("--rescan", code=1)[0].startswith("api/2 differs in layers.1.mlp.up.weight")
        assert {each["state"] for each in document("coverage")["sites"]} == {"compared", "differs"}


@pytest.mark.slow
@pytest.mark.usefixtures("prefix")
def test_a_daemon_reports_differing_weights_on_its_own(worker: Start) -> None:
    with running() as daemon:
        watching(worker, "0", "1")
        watching(worker, "2", more='{"norm.weight": array("f", [9, 1, 2])}')
        event = daemon.until("weights_differ")
        assert (event["worker"], event["command"]) == ("api/2", "brickd weights api")
        assert event["text"] == lines(code=1)[0]


@contextmanager
def relayed(path: Path, after_order: Callable[[], None]) -> Iterator[None]:
    """Put a relay in front of the daemon's socket, so that the test does not depend on how long requests take.

    The relay holds back the answer to a POST until `after_order` has run. At this moment, it sends the first request to
    the daemon once more, and keeps the answer for the next request.
    """

    def passed_on(request: bytes) -> bytes:
        with connected(runtime().socket) as daemon:
            daemon.sendall(request)
            return rest(daemon)

    def serve() -> None:
        first = ready = b""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # the test has ended and closed the socket
                return
            with client:
                request = client.recv(1 << 16)
                first, reported, ready = first or request, ready or passed_on(request), b""
                if request.startswith(b"POST"):
                    after_order()
                    ready = passed_on(first)
                client.sendall(reported)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_a_worker_without_steps_is_named_after_the_timeout(worker: Start) -> None:
    with running() as daemon:
        (going,) = watching(worker, "0")
        watching(worker, "1", steps=False)
        settled(daemon, "api/0", "api/1")

        def is_younger(document: Any) -> bool:  # api/0 was read first, and has been read again since
            ages = {each["worker"]: each["age_ns"] for each in document["workers"]}
            return bool(ages["api/0"] < ages["api/1"])

        def scan() -> None:
            going.go()
            daemon.once("/weights", is_younger)

        relay = runtime().directory / "relay"
        with relayed(relay, scan):
            ended = brickd("weights", "--rescan", "--timeout", "0", BRICKD_SOCKET=str(relay))
        assert ended.returncode == 2
        assert ended.stderr == (
            "brickd: api/1 has not read all of its weights within 0 s (3 of 3 tensors are read): a worker reads"
            " weights at the ends of its steps\n"
        )
        assert ended.stdout.startswith("2 of 2 workers equal, 3 tensors, ")


@pytest.mark.usefixtures("prefix")
def test_a_rescan_needs_a_daemon_and_no_recording() -> None:
    ended = brickd("weights", "--rescan")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "daemon" in ended.stderr
    assert brickd("weights", "x.brick", "--rescan").returncode == 2
    assert brickd("weights", "--timeout", "nan").returncode == 2


@contextmanager
def again(daemon: Running, *, killed: bool) -> Iterator[Running]:
    """End or kill the daemon, and start another."""
    if killed:
        daemon.kill()
    else:
        daemon.end()
    with running() as successor:
        yield successor


@pytest.mark.ci
@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.ci), True])
@pytest.mark.usefixtures("prefix")
def test_weights_read_once_are_known_to_all_later_daemons(worker: Start, killed: bool) -> None:
    with running() as daemon:
        sound, bad = watching(worker, "0", "1"), watching(worker, "2", spoil=FLIP)
        settled(daemon, "api/0", "api/1", "api/2")
        for each in (*sound, *bad):
            each.go()
        assert brickd("weights", "--rescan").returncode == 1
        before = weights_document("--all", code=1)
        with again(daemon, killed=killed):
            after = weights_document("--all", code=1)
            for reported in (before, after):
                reported.pop("source")
                for one in (*reported["workers"], *reported["services"]):
                    one.pop("age_ns")
                    one.pop("rescanned_age_ns")
            assert after == before


@pytest.mark.slow
@pytest.mark.usefixtures("prefix")
def test_weights_of_dead_workers_are_known_until_forgotten(worker: Start) -> None:
    with running() as daemon:
        found = [*watching(worker, "0", "1"), *watching(worker, "2", shift=1)]
        settled(daemon, "api/0", "api/1", "api/2")
        before = weights_document(code=1)["differing"]
        for each in found:
            each.kill()
        daemon.once("/events", lambda answer: [each["kind"] for each in answer["events"]].count("worker_died") == 3)
        assert weights_document(code=1)["differing"] == before
        assert brickd("prune").returncode == 0
        assert lines(code=6) == [NO_WORKERS]


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_a_damaged_weights_file_is_moved_aside_and_reported(worker: Start) -> None:
    with running() as daemon:
        (one,) = watching(worker, "0")
        settled(daemon, "api/0")
        daemon.end()
        path = Path(os.environ["BRICKD_RUNTIME_DIR"]) / "weights"
        path.write_bytes(path.read_bytes()[:-1])
        with running() as successor:
            assert "moved aside as weights.refused" in successor.until("break")["text"]
            assert weights_document(code=6)["workers"][0]["tensors"] == 0
            one.go()
            assert brickd("weights", "--rescan").returncode == 6
            assert weights_document(code=6)["workers"][0]["tensors"] == 3


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
@pytest.mark.parametrize(
    "degree", [[], *(pytest.param([degree], marks=pytest.mark.ci) for degree in ("--values", "--redact"))]
)
def test_a_recording_has_weights_known_at_its_start_and_read_meanwhile(
    worker: Start, tmp_path: Path, degree: list[str]
) -> None:
    base, path = tmp_path / "base.brick", tmp_path / "w.brick"
    with running() as daemon:
        one, _ = watching(worker, "0", "1", spoil=FLIP)
        settled(daemon, "api/0", "api/1")
        assert brickd("record", "-o", str(base), *degree, "--duration", "0.2").returncode == 0
        with recording("-o", str(path), *degree) as process:
            assert daemon.ask("/weights/rescan", b"")["workers"] == ["api/0", "api/1"]
            one.go()
            one.next_report()
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0
    assert (weights_document(str(base))["verdict"], weights_document(str(base))["workers"][0]["tensors"]) == (
        "equal",
        3,
    )
    (row,) = weights_document(str(path), code=1)["differing"]
    assert (row["why"], row["worker"], row["layer"], row["changed_in_place"]) == ("changed", "api/0", 1, True)
    assert (row["relative_error"] is not None) == (degree == ["--values"])
    ended = brickd("diff", f"{base}:api/0", f"{path}:api/0", "--by", "weights")
    assert ended.returncode == 1
    if degree == ["--redact"]:  # each redacted recording has its own key
        assert "w.brick:api/0 differs from its earlier content, in layers.1.mlp.up.weight" in ended.stdout
        assert "0 comparisons: 0 identical, 1 diverged, 6 not comparable (key 6)" in ended.stdout
    else:
        assert "w.brick:api/0 differs from 1 that agree, in layers.1.mlp.up.weight" in ended.stdout


@pytest.mark.ci
def test_a_flipped_bit_in_a_model_is_located_exactly(worker: Start, prefix: str) -> None:
    program = """
from random import Random
from benchmarks.damage import *
weights = drawn(size, 7)
fault = WeightFault(2, "layers.1.mlp.down.weight", Change(Kind.FLIP, 5, 21))
if os.environ["BRICKD_WORKER"] == "2": assert fault.strike(weights, size)
brick.weights(weights)
pause()
"""
    key = f"{os.environ['BRICKD_RUNTIME_DIR']}/key"
    for number in range(3):
        worker(MODEL + program, BRICKD_SERVICE="api", BRICKD_WORKER=str(number), BRICKD_KEY_FILE=key).paused()
    answer = weights_document(code=1)
    assert [(row["worker"], row["tensor"], row["layer"]) for row in answer["differing"]] == [
        ("api/2", "layers.*.mlp.down.weight", 1)
    ]
    assert answer["services"][0]["compared"] == 15


# ---- manifests


def test_workers_are_compared_with_a_saved_manifest(worker: Start, tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    one, _ = watching(worker, "0", "1", spoil=f"{FLIP}; brick.weights(weights)", steps=False)
    ended = brickd("weights", "api/0", "--save", str(path))
    assert (ended.returncode, ended.stderr) == (0, f"brickd: 3 tensors of api written to {path}\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["base.json"]
    manifest = json.loads(path.read_text())
    assert (manifest["schema_version"], manifest["service"], len(manifest["tensors"])) == (1, "api", 3)
    assert lines("--against", str(path))[0].startswith(f"2 of 2 workers equal to {path}, 3 tensors")
    one.go()
    one.next_report()
    shown = lines("--against", str(path), code=1)
    assert shown[0] == "api/0 differs from the manifest in layers.1.mlp.up.weight, 1 of 3 tensors"
    answer = weights_document("--against", str(path), code=1)
    assert answer["differing"][0]["why"] == "manifest"
    assert "tensors" not in answer


def test_tensors_missing_in_a_manifest_are_reported(worker: Start, tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    watching(worker, "0", more='{"a": array("d", [0]), "b": array("f", [0]), "c": array("d", [0])}')
    assert brickd("weights", "--save", str(path)).returncode == 0
    watching(worker, "1", more='{"b": array("d", [0]), "c": array("d", [0, 0]), "d": array("d", [0])}')
    watching(worker, "0.tp1")
    (one, two, three) = weights_document("--against", str(path), code=1)["workers"]
    assert (one["worker"], one["not_comparable"], one["compared"]) == ("api/0", {}, 6)
    assert (two["worker"], two["not_comparable"]) == ("api/0.tp1", {"shard": 3})
    assert three["not_comparable"] == {"not in the manifest": 1}
    assert (three["compared"], three["differing"], three["missing"], three["state"]) == (5, 3, 1, "differs")
    shown = brickd("weights", "--against", str(path)).stdout
    assert shown.startswith("api/1 differs from the manifest in 3 of 6 tensors, first in b\n")


def test_differing_or_unknown_weights_cannot_be_saved(worker: Start, tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    assert "nothing to save" in brickd("weights", "--save", str(path)).stderr
    watching(worker, "0")
    watching(worker, "1", shift=1)
    ended = brickd("weights", "--save", str(path))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "differs between api/1 and other workers: select a worker with the right weights" in ended.stderr
    assert brickd("weights", "api/0", "--save", str(tmp_path)).stderr == (
        f"brickd: {tmp_path}: is not a regular file (mode drwx------): use another file\n"
    )
    assert brickd("weights", "api/0", "--save", str(tmp_path / "no" / "such")).returncode == 2
    assert brickd("weights", "api/0", "--save", "x", "--against", "y").returncode == 2
    ended = brickd("weights", "--against", str(path))
    assert (ended.returncode, ended.stderr) == (
        2,
        f"brickd: {path}: cannot be read: No such file or directory (brickd weights --save MANIFEST writes one)\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_of_another_key_is_refused_with_the_fix(worker: Start, tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    watching(worker, "0")
    assert brickd("weights", "--save", str(path)).returncode == 0
    path.write_text(path.read_text().replace(json.loads(path.read_text())["key"], "0123456789abcdef"))
    ended = brickd("weights", "--against", str(path))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "has key 0123456789abcdef, the workers' checksums have key" in ended.stderr
    assert "BRICKD_KEY_FILE" in ended.stderr


ROW = '{"shard": "", "tensor": "w", "layer": 0, "expert": null, "dtype": "f", "shape": [1], "checksum": "%s"}'
HEAD = '{"schema_version": 1, "what": "weights", "service": "api", "key": null, "tensors": [%s]}'


@pytest.mark.usefixtures("prefix")
@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is not a valid manifest of weights"),
        ("[1]", "is not a manifest of weights"),
        ('{"what": "weights"}', "is not a valid manifest of weights"),
        ('{"what": "weights", "schema_version": 2}', "has version 2, this brickd reads version 1"),
        (HEAD % ROW, "expected numbers or null, and 16 digits"),
        (HEAD % ", ".join([ROW % ("0" * 16)] * 2), "is listed twice"),
        (HEAD % (ROW % ("0" * 16)).replace("[1]", '["1"]'), "expected a list of numbers"),
        (HEAD % (ROW % ("0" * 16)).replace("[1]", "7"), "is not a valid manifest of weights"),
        (HEAD % (ROW % ("0" * 16)).replace('"w"', "7"), "shard, tensor or dtype of 7 is not a name"),
        (HEAD % "7", "is not a valid manifest of weights"),
        (HEAD.replace('"api"', "[]") % "", "service is [], and key is None, expected a name"),
        ("[" * 100_000, "is not a valid manifest of weights"),
        ("\x00" * 10, "is not a valid manifest of weights"),
    ],
)
def test_an_invalid_manifest_is_refused_with_the_reason(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(content)
    ended = brickd("weights", "--against", str(path))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert why in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.usefixtures("prefix")
def test_oversized_manifests_and_non_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(BYTES_MAX + 1)
    assert "is larger than 64 MiB" in brickd("weights", "--against", str(path)).stderr
    os.mkfifo(tmp_path / "pipe")
    assert "pipe: is not a regular file (mode p" in brickd("weights", "--against", str(tmp_path / "pipe")).stderr
    assert brickd("weights", "--against", str(tmp_path / "none")).returncode == 2
