"""`brickd.live` and `brickd.open` give the same figures, errors and notes as the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Worker
from faults import Start
from serving import Daemon
from test_record import record, recording, still
from test_result_tables import flattened
from verbs import LOSING, document, started
from verbs import brickd as command

import brickd
from brickd.errors import (
    BrickdError,
    NoDaemon,
    NoSuchWorker,
    NothingComparable,
    NotPermitted,
    RecordingRefused,
    WrongQuestion,
)  # fmt: skip
from brickd.profile import Profile
from brickd.results.schema import BRICKS, FINGERPRINTS, SITES, TREE, WORKERS

STILL = {"BRICKD_CLOCK": "monotonic", "BRICKD_SERVICE": "api"}


def start_two(worker: Start) -> None:
    for number in range(2):
        started(worker, BRICKD_WORKER=str(number), **STILL)


def holds_the_figures_of_status(profile: Profile, *recordings: str) -> None:
    """Compare the tables with the document of `brickd status` for the totals since the start."""
    status = document("status", "--over", "start", *recordings)
    bricks, workers = profile.bricks(), profile.workers()
    shares = [{key: value for key, value in row.items() if key != "share_percent"} for row in bricks]
    assert shares == status["bricks"]
    assert still(list(workers)) == still(status["workers"])
    array = bricks.to_numpy()
    for key in ("count", "self_ns", "total_ns", "elements", "bytes"):
        assert array[key].sum() == sum(row[key] for row in status["bricks"]) > 0
    begun = workers.to_numpy()["ledger.spans.begun"].sum()
    assert begun == status["ledger"]["spans"]["begun"] == 2 * 200


def test_live_figures_are_those_of_status_without_a_daemon(worker: Start) -> None:
    start_two(worker)
    holds_the_figures_of_status(brickd.live())
    assert brickd.live().bricks().document["source"] == "shared memory"


@pytest.mark.ci
def test_live_figures_are_those_of_status_from_a_daemon(worker: Start, daemon: Daemon) -> None:
    start_two(worker)
    holds_the_figures_of_status(brickd.live())
    assert brickd.live().bricks().document["source"] == "daemon"


@pytest.mark.ci
def test_recorded_figures_are_those_of_status(worker: Start, tmp_path: Path) -> None:
    start_two(worker)
    path = tmp_path / "run.brick"
    record("-o", str(path), "--duration", "0.05")
    profile = brickd.open(path)
    holds_the_figures_of_status(profile, str(path))
    assert profile.bricks().document["recording"]["files"][0]["path"] == str(path)
    assert any("state at" in note for note in profile.bricks().words)


def test_a_table_is_the_document_of_its_verb(worker: Start) -> None:
    start_two(worker)
    profile = brickd.live()
    bricks = profile.bricks("api", sort="count", by="worker", category="norm", top=1)
    asked = ("api", "--sort", "count", "--by", "worker", "--category", "norm", "--top", "1")
    assert (bricks.document, len(bricks)) == (document("bricks", *asked), 1)
    assert bricks.column("worker") == [bricks[0]["worker"]]
    assert still(profile.workers("api/1").document["workers"]) == still(document("workers", "api/1")["workers"])


# A worker that records something for every table; workers with different numbers give different outputs.
RICH = """
from array import array
brick.init()
pause()
for step in range(3):
    with brick.step(step, kind="decode", rows=4, valid=3), brick.layer(2):
        brick.kernel("gemm", grid=(2,), block=32, elapsed_ns=100)
        brick.transfer("H2D", 64, src="a", dst="b")
    with brick.layer(2):
        brick.checksum("scale", array("f", [step, number]), input=array("f", [step]), step=step, backend="CPU")
with brick.span("open"): pause()
"""


def start_rich(worker: Start) -> list[Worker]:
    """Start two workers that record when `go_on` is called."""
    return [started(worker, f"number = {n}\n{RICH}", BRICKD_WORKER=str(n), **STILL) for n in range(2)]


def go_on(workers: list[Worker]) -> None:
    for each in workers:
        each.go()
        each.paused()


@pytest.fixture
def rich(worker: Start) -> list[Worker]:
    """Two workers that have recorded something for every table."""
    workers = start_rich(worker)
    go_on(workers)
    return workers


@pytest.fixture
def rich_recording(worker: Start, tmp_path: Path) -> str:
    """A recording of two workers that have recorded something for every table."""
    path = str(tmp_path / "rich.brick")
    workers = start_rich(worker)
    with recording("-o", path) as process:
        go_on(workers)
        process.send_signal(signal.SIGINT)
        process.communicate()
    return path


@pytest.mark.ci
@pytest.mark.usefixtures("rich")
def test_the_columns_are_the_keys_of_the_rows() -> None:
    live = brickd.live()
    tables = {
        BRICKS: live.bricks(),
        WORKERS: live.workers(),
        TREE: live.tree(),
        FINGERPRINTS: live.fingerprints(),
        SITES: live.diff("api").sites,
    }
    for schema, table in tables.items():
        names = [column.name for column in schema.columns]
        assert len(table) > 0
        for row in table:
            assert [*flattened(row, set(names))] == names
        assert table.to_numpy().shape == (len(table),)


@pytest.mark.usefixtures("rich")
def test_a_tree_is_the_document_of_its_verb() -> None:
    tree = brickd.live().tree("api/0", layers=True, depth=2, min=100)
    assert tree.document == document("tree", "api/0", "--layers", "--depth", "2", "--min", "100")
    assert 0 < len(tree) < len(brickd.live().tree("api/0", layers=True, depth=2))


def test_problems_are_those_of_status(worker: Start) -> None:
    process = started(worker, LOSING)
    process.kill()
    problems = brickd.live().problems()
    listed = document("status")["problems"]
    assert [row["kind"] for row in problems] == ["died", "lost", "lost"]
    (names,) = {tuple(row) for row in map(dict.keys, listed)}
    assert problems.columns == names
    timed = {"since", "seen"}
    assert [dict(row) | dict.fromkeys(timed) for row in problems] == [row | dict.fromkeys(timed) for row in listed]


def has_the_fingerprints_of_diff(profile: Profile) -> None:
    rows = profile.fingerprints()
    assert (len(rows), {*rows.column("worker")}) == (6, {"api/0", "api/1"})
    first = profile.diff("api/0", "api/1").document["first"]
    for side in (first["a"], first["b"]):
        (row,) = [row for row in rows if (row["worker"], row["step"]) == (side["worker"], side["step"])]
        shared = side.keys() & row.keys()
        assert {"checksum", "mean", "fnv1a", "shape"} <= shared
        assert {key: row[key] for key in shared} == {key: side[key] for key in shared}
        assert (row["kernel"], row["layer"], row["service"], row["by_row"]) == ("scale", 2, "api", False)
        assert (row["backend"], [each["elements"] for each in row["inputs"]]) == ("CPU", [1])


@pytest.mark.usefixtures("rich")
def test_a_fingerprint_has_the_values_that_diff_shows() -> None:
    has_the_fingerprints_of_diff(brickd.live())
    assert brickd.live().fingerprints("api/1").column("worker") == ["api/1"] * 3
    with pytest.raises(NoSuchWorker):
        brickd.live().fingerprints("nobody")


@pytest.mark.ci
def test_a_recorded_fingerprint_has_the_values_that_diff_shows(rich_recording: str) -> None:
    has_the_fingerprints_of_diff(brickd.open(rich_recording))


@pytest.mark.ci
@pytest.mark.usefixtures("rich")
def test_fingerprints_of_a_daemon_are_those_of_the_rings(daemon: Daemon) -> None:
    from_daemon = brickd.live().fingerprints()
    assert from_daemon.document["source"] == "daemon"
    daemon.end()
    assert list(brickd.live().fingerprints()) == list(from_daemon)


@pytest.mark.ci
def test_a_comparison_is_the_document_of_diff_with_its_sites_as_a_table(rich_recording: str) -> None:
    path = rich_recording
    found = brickd.open(path).diff("api/0", "api/1", by="input")
    assert found.document == document("diff", f"{path}:api/0", f"{path}:api/1", "--by", "input", code=1)
    assert (found.verdict, found.kernel) == ("diverged", "scale")
    assert found.to_numpy()["diverged"].tolist() == [found.document["diverged"]] == [3]
    assert f"<p>{found.document['headlines'][0]}</p>" in found._repr_html_()


def test_workers_without_a_common_record_are_not_comparable(worker: Start) -> None:
    start_two(worker)
    with pytest.raises(NothingComparable) as raised:
        brickd.live().diff("api/0", "api/1")
    refused = command("diff", "api/0", "api/1")
    assert (refused.returncode, str(raised.value) in refused.stderr) == (6, True)


def test_the_first_key_of_a_quarantined_file_is_its_path(worker: Start, prefix: str) -> None:
    (Path("/dev/shm") / f"{prefix}x").write_bytes(b"nothing")
    (row,) = brickd.live().workers().to_numpy()
    assert (row["state"], row["service"], row["drained"], str(row["started"])) == ("quarantined", None, None, "NaT")


# ---- errors


def text_of(kind: type[BrickdError], *arguments: str) -> str:
    """Return the message of a verb that fails with this error."""
    refused = command(*arguments)
    assert refused.returncode == kind.exit_code, refused.stderr
    return refused.stderr.removeprefix("brickd: ").removesuffix("\n")


def test_a_period_needs_a_daemon(worker: Start) -> None:
    started(worker)
    with pytest.raises(NoDaemon) as raised:
        brickd.live().bricks(over="30s")
    assert str(raised.value) == text_of(NoDaemon, "bricks", "--over", "30s")
    with pytest.raises(NoDaemon, match="of the last 30s"):
        brickd.live().bricks(over=30)


def test_an_unknown_worker_is_an_error(worker: Start) -> None:
    started(worker)
    with pytest.raises(NoSuchWorker) as raised:
        brickd.live().workers("nobody")
    assert str(raised.value) == text_of(NoSuchWorker, "workers", "nobody")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sort": "color"}, "sort is 'color', expected one of self, total"),
        ({"by": "host"}, "by is 'host', expected one of worker, service, layer"),
        ({"top": 0}, "top is 0, expected a whole number of 1 or more"),
        ({"over": 5}, "over is 5, expected a duration of 10s to 48h"),
        ({"over": "5 bananas"}, "over is '5 bananas', expected a duration"),
    ],
)
def test_a_wrong_parameter_is_refused_with_the_expected_values(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongQuestion, match=f"^{message}"):
        brickd.live().bricks(**wrong)


def test_a_file_that_is_no_recording_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "notes.brick"
    for make in (lambda: path.write_text("notes"), path.touch, path.mkdir, lambda: os.mkfifo(path), lambda: None):
        make()
        with pytest.raises(RecordingRefused) as raised:
            brickd.open(path)
        assert str(raised.value) == text_of(RecordingRefused, "status", str(path))
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)


@pytest.mark.ci
def test_a_recording_of_another_user_is_refused(nobody: list[str], worker: Start, tmp_path: Path) -> None:
    path = tmp_path / "run.brick"
    record("-o", str(path), "--duration", "0.05")
    program = f"""
import brickd, brickd.errors
try: brickd.open({str(path)!r})
except brickd.errors.NotPermitted as error: print(error)
"""
    done = subprocess.run([*nobody, sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{path}: cannot be opened: Permission denied")
    assert NotPermitted.exit_code == 5


@pytest.mark.ci
def test_files_of_two_recordings_are_refused(worker: Start, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a.brick", "b.brick")]
    for path in paths:
        record("-o", path, "--duration", "0.05")
    with pytest.raises(RecordingRefused) as raised:
        brickd.open(*paths).workers()
    assert str(raised.value) == text_of(RecordingRefused, "workers", *paths)


@pytest.mark.ci
def test_a_recording_without_workers_gives_empty_tables(prefix: str, tmp_path: Path) -> None:
    path = str(tmp_path / "empty.brick")
    record("-o", path, "--duration", "0.05")
    empty = brickd.open(path)
    for table in (empty.bricks(), empty.workers(), empty.tree(), empty.problems(), empty.fingerprints()):
        assert (len(table), table.to_numpy().shape) == (0, (0,))
        assert "0 rows from recording" in table._repr_html_()


@pytest.mark.ci
def test_a_recording_cut_before_its_first_snapshot_is_refused(worker: Start, tmp_path: Path) -> None:
    started(worker)
    path = tmp_path / "cut.brick"
    record("-o", str(path), "--duration", "0.05")
    os.truncate(path, 128)
    with pytest.raises(RecordingRefused) as raised:
        brickd.open(path).workers()
    assert str(raised.value) == text_of(RecordingRefused, "workers", str(path))


@pytest.mark.ci
def test_a_recording_that_is_still_written_shows_what_is_there(worker: Start, tmp_path: Path) -> None:
    start_two(worker)
    path = tmp_path / "run.brick"
    with recording("-o", str(path)):
        profile = brickd.open(path)
        assert profile.workers().column("name") == ["api/0", "api/1"]
        assert profile.bricks().to_numpy()["count"].sum() == 2 * 200
        assert profile.workers().document["recording"]["files"][0]["ended"] is None


@pytest.mark.ci
def test_importing_brickd_loads_nothing_and_a_profile_loads_no_numpy(prefix: str) -> None:
    program = """
import sys
import __future__, typing  # Python itself
before = set(sys.modules)
import brickd
print(*sorted(set(sys.modules) - before))
brickd.live().workers()
print("numpy" in sys.modules, "pandas" in sys.modules, "pyarrow" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["brickd", "False False False"]
