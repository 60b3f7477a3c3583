"""`brickd bundle`: what is inside is what the verbs say, whatever is wrong with the machine."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
from bundles import bundle, contents, documents
from faults import Start
from running import going, running, until
from serving import still
from test_record import recording
from verbs import brickd, document, started

from brickd.base.paths import runtime
from brickd.bundle.archive_check import check
from brickd.bundle.archive_writer import archive, require_free
from brickd.bundle.bounded_call import bounded_call
from brickd.bundle.manifest import BundleManifest, decode, diff_name, encoded
from brickd.errors import BrickdError

VERBS = ("status", "coverage", "weights", "history")
# With this clock, a tick is 1 ns, so the figures of an idle worker do not change with time.
STILL = {"BRICKD_CLOCK": "monotonic", "BRICKD_SERVICE": "api"}
CHECKED = """
from array import array
brick.init(service="api")
brick.checksum("gemm", array("f", [1, 2]), input=array("f", [3]), step=1)
with brick.brick("gemm"): pass
pause()
"""

WORKING = """
from array import array
pause()
brick.init(service="api")
brick.weights({"w": array("f", [n])})
for step in range(4):
    brick.checksum("gemm", array("f", [step, n // 2]), input=array("f", [step, 5]), step=step)
    with brick.brick("gemm"): pass
pause()
"""


def missing(report: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["reason"] for each in report["manifest"]["missing"]}


def quiet(value: Any) -> Any:
    """Return a document without what changes between two readings of idle workers."""
    kept = still(value)
    for name in ("window", "ledger", "now", "to", "from", "newest", "newest_time", "unlooked"):
        kept.pop(name, None)
    return kept


@pytest.mark.ci
def test_the_documents_are_those_of_the_verbs(worker: Start, tmp_path: Path) -> None:
    for number in range(2):
        started(worker, CHECKED, BRICKD_WORKER=str(number), **STILL)
    path = tmp_path / "b.tar.gz"
    with running() as daemon:
        daemon.once("/status", lambda found: len(found["workers"]) == 2)
        report = bundle(path, "--no-redact", "--duration", "0.1")
        inside = documents(path)
        for verb in ("status", "coverage"):
            assert quiet(inside[verb]) == quiet(document(verb)), verb
        assert inside["events"]["events"][:2] == document("events")["events"][:2]
        compared = json.loads(brickd("diff", "api", "--json").stdout)
        assert quiet(inside["diff-api"]) | {"timing": 0} == quiet(compared) | {"timing": 0}
        checks = {each["name"]: each["wanted"] for each in inside["doctor"]["findings"]}
        asked = {each["name"]: each["wanted"] for each in json.loads(brickd("doctor", "--json").stdout)["findings"]}
        assert len(checks.items() & asked.items()) > 15
        settings = json.loads(brickd("set", "api", "--json").stdout)
        configuration = inside["configuration"]
        assert configuration["thresholds"] == settings["thresholds"]
        assert [each["fingerprints"] for each in configuration["services"]] == [settings["fingerprints"]]
        assert configuration["paths"]["socket"] == os.fspath(runtime().socket)
    assert report["manifest"]["daemon"]["answers"]
    assert {each["source"] for each in report["manifest"]["members"]} == {None, "daemon"}
    assert [
        variable for variable in inside["environment"]["variables"] if not variable["name"].startswith("BRICKD_")
    ] == []
    (tmp_path / "r.brick").write_bytes(contents(path)["recording.brick"])
    assert len(document("status", str(tmp_path / "r.brick"))["workers"]) == 2
    assert check(str(path)).faults == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.ci
def test_a_redacted_recording_shows_the_same_numbers(worker: Start, tmp_path: Path) -> None:
    for number in range(2):
        started(worker, CHECKED, BRICKD_WORKER=str(number), **STILL)
    bundle(tmp_path / "b.tar.gz", "--duration", "0.1")
    (tmp_path / "r.brick").write_bytes(contents(tmp_path / "b.tar.gz")["recording.brick"])
    live, recorded = document("bricks"), document("bricks", str(tmp_path / "r.brick"))
    assert recorded["recording"]["redacted"]
    assert recorded["recording"]["host"] == "redacted-host"
    assert [each["problem"] for each in recorded["recording"]["files"]] == [None]
    assert [(each["name"], each["count"]) for each in live["bricks"]] == [
        (each["name"], each["count"]) for each in recorded["bricks"]
    ]


@pytest.mark.ci
def test_the_records_of_a_recording_are_copied(worker: Start, tmp_path: Path) -> None:
    workers = [worker(f"n = {number}\n{WORKING}", BRICKD_WORKER=str(number), **STILL) for number in range(3)]
    for each in workers:
        each.paused()
    named, copied = str(tmp_path / "a.brick"), tmp_path / "r.brick"
    with recording("-o", named, "--redact") as process:
        for each in workers:
            each.go()
            each.paused()
        process.send_signal(signal.SIGINT)
        process.communicate()
    bundle(tmp_path / "b.tar.gz", named)
    copied.write_bytes(contents(tmp_path / "b.tar.gz")["recording.brick"])
    for verb, code in (("diff", 1), ("weights", 1), ("bricks", 0), ("tree", 0)):
        one, other = document(verb, named, code=code), document(verb, str(copied), code=code)
        of, to = one.pop("recording"), other.pop("recording")
        assert json.dumps(one).replace(named, str(copied)) == json.dumps(other), verb
        assert (of["id"], of["shown"], of["files"][0]["records"]) == (to["id"], to["shown"], to["files"][0]["records"])
        assert to["files"][0]["records"] > 0


@pytest.mark.ci
def test_without_a_daemon_and_without_workers_the_parts_that_need_them_are_missing(tmp_path: Path, prefix: str) -> None:
    report = bundle(tmp_path / "b.tar.gz", "--duration", "0.1")
    assert {*missing(report)} == {"events.json", "history.json", "stragglers.json"}
    assert all("no daemon answers at " in reason for reason in missing(report).values())
    inside = documents(tmp_path / "b.tar.gz")
    assert (inside["status"]["workers"], inside["configuration"]["thresholds"]) == ([], None)
    assert not inside["manifest"]["daemon"]["answers"]
    assert "no daemon answers" in inside["configuration"]["why"]


@pytest.mark.ci
def test_a_daemon_that_hangs_is_asked_once(worker: Start, tmp_path: Path) -> None:
    started(worker, CHECKED, **STILL)
    with running() as daemon, daemon.stopped():
        report = bundle(tmp_path / "b.tar.gz")
        inside = documents(tmp_path / "b.tar.gz")
    assert {*missing(report)} == {"events.json", "history.json", "stragglers.json", "recording.brick"}
    assert all("does not answer" in reason for reason in missing(report).values())
    assert [each["name"] for each in inside["status"]["workers"]] == ["api/0"]
    assert inside["status"]["source"] == "shared memory"
    assert "doctor" in inside
    assert (inside["manifest"]["daemon"]["answers"], "does not answer" in inside["manifest"]["daemon"]["why"]) == (
        False,
        True,
    )


@pytest.mark.ci
def test_named_recordings_are_included_and_none_is_made(worker: Start, tmp_path: Path) -> None:
    started(worker, CHECKED, **STILL)
    names = [str(tmp_path / name) for name in ("a.brick", "b.brick")]
    for name in names:
        with recording("-o", name, "--redact") as process:
            process.send_signal(signal.SIGINT)
            process.communicate()
    report = bundle(tmp_path / "b.tar.gz", *names)
    assert [each["name"] for each in report["manifest"]["members"]][-2:] == ["recording.brick", "recording-2.brick"]
    assert check(str(tmp_path / "b.tar.gz")).faults == []
    bundle(tmp_path / "n.tar.gz", names[0], "--no-redact")
    assert contents(tmp_path / "n.tar.gz")["recording.brick"] == Path(names[0]).read_bytes()


@pytest.mark.ci
def test_a_recording_that_is_not_redacted_is_refused(worker: Start, tmp_path: Path) -> None:
    started(worker, CHECKED, **STILL)
    name = str(tmp_path / "a.brick")
    with recording("-o", name) as process:
        process.send_signal(signal.SIGINT)
        process.communicate()
    refused = brickd("bundle", name, "-o", str(tmp_path / "b.tar.gz"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"brickd: {name}: is not redacted: record with --redact, or use --no-redact\n"
    assert not (tmp_path / "b.tar.gz").exists()
    unknown = brickd("bundle", "0123", "-o", str(tmp_path / "b.tar.gz"))
    assert unknown.returncode == 2
    assert "neither a file nor the id of a recording" in unknown.stderr


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(worker: Start, tmp_path: Path, number: signal.Signals) -> None:
    started(worker, CHECKED, **STILL)
    folder, temporary = tmp_path / "out", tmp_path / "tmp"
    folder.mkdir()
    temporary.mkdir()
    with running() as daemon:
        arguments = ("bundle", "-o", str(folder / "b.tar.gz"), "--duration", "1h")
        with going(*arguments, under=("env",), TMPDIR=str(temporary)) as process:
            daemon.until("recording_began")
            assert len(os.listdir(folder)) == len(os.listdir(temporary)) == 1
            process.send_signal(number)
            process.communicate()
            assert process.returncode == 130
        daemon.until("recording_ended")
        assert (os.listdir(folder), os.listdir(temporary)) == ([], [])
        until(lambda: daemon.ask("/record")["recordings"] == [])


def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_bytes(b"old")
    with (
        pytest.raises(BrickdError, match="already exists: use another -o FILE, or --force"),
        archive(path, 0, force=False),
    ):
        pass
    with pytest.raises(BrickdError, match="already exists"):  # before any work is done
        require_free(path, force=False)
    assert path.read_bytes() == b"old"
    with pytest.raises(KeyboardInterrupt), archive(path, 0, force=True):
        raise KeyboardInterrupt
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["b.tar.gz"])
    with archive(path, 0, force=True) as file:
        file.add("a.json", b"{}")
    assert (contents(path), os.listdir(tmp_path)) == ({"a.json": b"{}"}, ["b.tar.gz"])


def test_an_archive_may_have_the_longest_name_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / ("12" + "漢" * 82 + ".tar.gz")
    assert len(os.fsencode(path.name)) == 255
    with archive(path, 0, force=False) as file:
        file.add("a.json", b"{}")
    assert contents(path) == {"a.json": b"{}"}


def test_a_file_that_comes_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    with pytest.raises(BrickdError, match="already exists"), archive(path, 0, force=False):
        path.write_bytes(b"new")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"new", ["b.tar.gz"])


def test_a_link_is_never_replaced(tmp_path: Path) -> None:
    path, target = tmp_path / "b.tar.gz", tmp_path / "target"
    target.write_bytes(b"old")
    path.symlink_to(target)
    for force in (False, True):
        with pytest.raises(BrickdError, match="is a link: use another -o FILE"), archive(path, 0, force=force):
            pass
    path.unlink()
    with pytest.raises(BrickdError, match="is a link"), archive(path, 0, force=True):
        path.symlink_to(target)
    assert target.read_bytes() == b"old"
    for place in (tmp_path, tmp_path / "none" / "b"):
        with pytest.raises(BrickdError, match=r"not a regular file|no such directory"), archive(place, 0, force=True):
            pass


def test_a_new_archive_is_private_and_names_no_user(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    before = os.umask(0)
    try:
        with archive(path, 7, force=False) as file:
            file.add("a.json", b"{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    import tarfile

    with tarfile.open(path) as tar:
        (head,) = tar
    assert (head.uid, head.gid, head.uname, head.gname, head.mode, head.mtime) == (0, 0, "", "", 0o600, 7)
    assert path.read_bytes()[3] == 0  # the gzip header has no name of a file


def test_a_call_that_hangs_ends_at_its_deadline() -> None:
    waited: list[int] = []
    found = bounded_call(signal.pause, 0.15, 100, lambda: waited.append(1))
    assert (found.value, found.late, found.reason) == (None, True, "it took longer than 0.15 s")
    assert waited


def test_a_call_gives_its_value_or_the_reason() -> None:
    def fails() -> None:
        raise BrickdError("no way")

    assert bounded_call(lambda: {"a": [1]}, 5, 100).value == {"a": [1]}
    assert bounded_call(fails, 5, 100).reason == "no way"


@pytest.mark.ci
def test_a_call_that_crashes_or_says_too_much_has_no_value() -> None:
    def crashes() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    crashed = "the process that made it ended with signal 9 (this is a defect of brickd)"
    assert bounded_call(crashes, 5, 100).reason == crashed
    assert "ZeroDivisionError: division by zero (this is a defect" in str(bounded_call(lambda: 1 / 0, 5, 1000).reason)
    long = "it has more than 100 bytes, the limit of a document in a bundle"
    assert bounded_call(lambda: "x" * 200, 5, 100).reason == long
    assert bounded_call(lambda: print("noise"), 5, 100) == (None, None, False)


def test_a_manifest_is_read_as_it_was_written() -> None:
    written = BundleManifest("now", True, "1", None, {"answers": False}, {"name": None}, (), (), ("a",), ("b",))
    assert decode(encoded(written.document())) == written


def test_the_diff_of_each_service_has_its_own_name() -> None:
    taken: set[str] = set()
    for service in ("a/b", "a b", "a_b"):
        taken.add(diff_name(service, taken))
    assert taken == {"diff-a_b.json", "diff-a_b-2.json", "diff-a_b-3.json"}
    assert len(diff_name("x" * 500, set())) < 96


@pytest.mark.ci
def test_options_that_contradict_each_other_are_refused() -> None:
    refused = brickd("bundle", "a.brick", "--no-recording")
    assert (refused.returncode, "--no-recording contradicts recording a.brick" in refused.stderr) == (2, True)
    assert brickd("bundle", "--output=").returncode == 2
    assert "--duration needs a recording" in brickd("bundle", "--no-recording", "--duration", "1s").stderr
    assert brickd("bundle", "--duration", "0").returncode == 2
