"""`brickd doctor` on this machine, with real faulty workers. In most tests, `doctor` sees only the processes of the
test.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import SHM, reading
from faults import PRIVATE, Start, needs_namespaces
from verbs import LOSING, SPANS, brickd, started

from brickd.doctor.run_checks import judge, observe
from brickd.doctor.segments import most_bytes
from brickd.shm import _reader
from brickd.shm.segment import open_segment

pytestmark = pytest.mark.interpreter

Finding = dict[str, Any]


def examined() -> list[Finding]:
    """Return the findings about this machine and about the processes of this test."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("locks", "self", *(str(child.pid) for child in psutil.Process().children(recursive=True))):
            Path(folder, name).symlink_to(f"/proc/{name}")
        return [finding.document() for finding in judge(observe(Path(folder)))]


def about(findings: list[Finding], name: str, what: object) -> Finding:
    """Return this check's only finding about this worker, process or file."""
    (found,) = [finding for finding in findings if finding["name"] == name and str(what) in finding["about"]]
    return found


def test_a_machine_with_a_healthy_worker_needs_no_fix(worker: Start) -> None:
    process = started(worker, BRICKD_SERVICE="api")
    findings = examined()
    assert "broken" not in {finding["state"] for finding in findings}
    assert about(findings, "processes", process.pid)["state"] == "ok"
    of_ours = ("segments-foreign", "segments-refused", "segments-dead", "losses", "pid-namespace")
    assert {finding["state"] for finding in findings if finding["name"] in of_ours} == {"ok"}
    unwanted = [
        finding["name"] for finding in findings if finding["state"] != "ok" and str(process.pid) in finding["about"]
    ]
    assert unwanted == []


@pytest.mark.ci
@pytest.mark.parametrize("major", [b"\1", b"\xff"])
def test_the_exit_code_says_whether_a_finding_is_broken(worker: Start, prefix: str, major: bytes) -> None:
    started(worker)
    with (SHM / reading(prefix).file).open("r+b", buffering=0) as opened:
        os.pwrite(opened.fileno(), major, 12)
    result = brickd("doctor", "--json")
    document = json.loads(result.stdout)
    # the number includes processes of other tests
    states = {finding["name"]: finding["state"] for finding in document["findings"]}
    assert document["healthy"] == ("broken" not in states.values())
    assert states["segments-refused"] == ("ok" if major == b"\1" else "broken")
    assert (result.returncode, result.stderr) == (0 if document["healthy"] else 1, "")


@pytest.mark.ci
def test_the_memory_that_threads_may_still_take_is_what_they_take_when_they_use_every_place(
    worker: Start, prefix: str
) -> None:
    """One thread has used all paths, the other thread one path; no ring has been used yet."""
    process = started(
        worker,
        """
from threading import Thread
from queue import SimpleQueue
orders, over = SimpleQueue(), SimpleQueue()
def work(places):
    for place in range(places):
        with brick.layer(place), brick.span("part"): pass
def other():
    work(1)
    over.put(0)
    orders.get()
    work(130)
    brick.brick("part").defer()
    over.put(0)
    orders.get()
thread = Thread(target=other)
thread.start()
over.get()
work(130)
pause()
orders.put(0)
over.get()
work(130)
brick.brick("part").defer()
pause()
orders.put(0)
thread.join()
""",
        BRICKD_NAMES="64",
    )
    before = reading(prefix)
    with open_segment(before.file, os.O_RDWR) as segment:
        segment.command(_reader.CONTROL_SPANS)
    process.go()
    process.paused()
    after = reading(prefix)
    assert len(after.lanes) == 2
    assert before.memory_bytes < most_bytes(before) == most_bytes(after) == after.memory_bytes
    assert after.memory_bytes < after.header["size"] // 50
    finding = next(finding for finding in examined() if finding["name"] == "shm-room")
    assert finding["wanted"] == (
        "19 MiB, what 1 worker may still take with the present threads and paths (0 MiB), and the need of a new worker"
        " with 32 threads and 200 paths"
    )
    process.go()
    assert process.end() == 0, process.stderr


def test_a_dead_workers_segment_is_reported_with_its_size_and_prune(worker: Start, prefix: str) -> None:
    started(worker, BRICKD_SERVICE="api").kill()
    finding = about(examined(), "segments-dead", reading(prefix).file)
    assert (finding["state"], finding["fix"]) == ("advice", "brickd prune")
    assert "1 segment of workers that ended or died (api/0), " in finding["seen"]


@pytest.mark.ci
def test_a_worker_with_another_key_than_its_service_is_reported(worker: Start, tmp_path: Path) -> None:
    other, bad = tmp_path / "other", tmp_path / "bad"
    for file, mode in ((other, 0o600), (bad, 0o644)):
        file.write_text("0123456789abcdef" * 3)
        file.chmod(mode)
    programs = {"api/0": "x", "api/1": "x", "api/2": "x", "api/3": "x", "api/4": "object()"}
    for name, tensor in programs.items():
        given = {"api/2": {"BRICKD_KEY_FILE": str(other)}, "api/3": {"BRICKD_KEY_FILE": str(bad)}}.get(name, {})
        process = worker(
            f"x = b'123'\nbrick.init()\nbrick.checksum('k', {tensor})\npause()",
            BRICKD_SERVICE="api",
            BRICKD_WORKER=name.partition("/")[2],
            **given,
        )
        process.paused()
    finding = about(examined(), "keys", "api/2")
    assert (finding["state"], finding["about"]) == ("advice", ["api/2", "api/3"])
    assert finding["seen"] == "a different key in api/2, api/3 than in api/0"
    assert finding["fix"] == f"BRICKD_KEY_FILE={os.environ['BRICKD_STATE_DIR']}/key"


def test_a_refused_file_is_reported_with_its_reason(worker: Start, prefix: str) -> None:
    started(worker)
    (SHM / f"{prefix}junk").write_bytes(b"\1" * 8192)
    (SHM / f"{prefix}link").symlink_to("/etc/passwd")
    findings = examined()
    junk, link = (
        about(findings, "segments-refused", f"{prefix}junk"),
        about(findings, "segments-refused", f"{prefix}link"),
    )
    assert (junk["state"], junk["fix"]) == ("advice", "brickd prune --refused")
    assert "not a segment" in junk["seen"]
    assert link["fix"] == f"rm -r -- /dev/shm/{prefix}link"


def test_a_live_segment_of_an_unreadable_format_is_broken(worker: Start, prefix: str) -> None:
    started(worker)
    file = reading(prefix).file
    with (SHM / file).open("r+b", buffering=0) as opened:
        os.pwrite(opened.fileno(), b"\xff", 12)  # overwrites the major version of the format
    finding = about(examined(), "segments-refused", file)
    assert (finding["state"], finding["fix"]) == ("broken", "pip install ./agent .")
    assert "format" in finding["seen"]


@pytest.mark.ci
def test_a_worker_with_another_prefix_is_found_and_the_prefix_named(worker: Start, prefix: str) -> None:
    process = started(worker, BRICKD_SHM_PREFIX=f"x {prefix}")
    try:
        finding = about(examined(), "prefix", process.pid)
        assert finding["state"] == "broken"  # no worker is visible with the prefix of this command
        reported = subprocess.run(
            finding["fix"].replace(" brickd status", f" {sys.executable} -P -m brickd status --json"),
            shell=True, capture_output=True, text=True, check=True, env=os.environ | {"BRICKD_SHM_PREFIX": prefix},
        )  # fmt: skip
        assert [each["pid"] for each in json.loads(reported.stdout)["workers"]] == [process.pid]
    finally:
        process.kill()
        for file in SHM.glob(f"x {prefix}*"):
            file.unlink()


@pytest.mark.ci
def test_another_prefix_is_only_advice_if_workers_are_visible(worker: Start, prefix: str) -> None:
    started(worker)
    other = started(worker, BRICKD_SHM_PREFIX=f"x{prefix}")
    try:
        assert about(examined(), "prefix", other.pid)["state"] == "advice"
    finally:
        other.kill()
        for file in SHM.glob(f"x{prefix}*"):
            file.unlink()


def test_a_worker_with_a_removed_file_is_reported(worker: Start, prefix: str) -> None:
    process = started(worker)
    (SHM / reading(prefix).file).unlink()
    finding = about(examined(), "removed", process.pid)
    assert (finding["state"], "RemoveIPC" in finding["why"]) == ("advice", True)


@pytest.mark.ci
def test_a_child_that_only_has_its_parents_segment_is_ok(worker: Start) -> None:
    process = worker(
        """
        with brick.span("b"): pass
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        report(child)
        pause()
        os.close(writer)
        os.waitpid(child, 0)
        """
    )
    child = process.next_report()
    process.paused()
    findings = examined()
    wrong = [finding["name"] for finding in findings if finding["state"] != "ok" and str(child) in finding["about"]]
    assert wrong == []
    assert about(findings, "processes", child)
    process.go()
    assert process.end() == 0


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("BRICKD", "0", "BRICKD=0 turns recording off"),
        pytest.param("BRICKD_WORKER", "3", "has recorded nothing yet", marks=pytest.mark.ci),
    ],
)
def test_a_process_with_the_agent_and_no_segment_is_reported_with_the_reason(
    worker: Start, variable: str, value: str, why: str
) -> None:
    program = "brick.init()\npause()" if variable != "BRICKD_WORKER" else "pause()"
    process = started(worker, program, **{variable: value})
    finding = about(examined(), "silent", process.pid)
    assert finding["state"] == "advice"
    assert why in finding["why"]
    assert finding["fix"] == ("brick.init()" if variable == "BRICKD_WORKER" else f"unset {variable}")


def test_a_worker_whose_host_closed_its_descriptor_is_reported(worker: Start) -> None:
    process = started(worker, "brick.init()\nos.close(_core._segment_fd())\npause()")
    finding = about(examined(), "lock", process.pid)
    assert (finding["state"], finding["fix"]) == ("advice", "brick.init()")


def test_losses_are_broken_or_advice_with_the_value_to_set(worker: Start) -> None:
    started(worker, LOSING, BRICKD_SERVICE="api")
    findings = examined()
    lanes, tables = about(findings, "loss-lanes", "api/0"), about(findings, "loss-tables", "api/0")
    assert (lanes["state"], lanes["fix"]) == ("broken", "BRICKD_LANES=2")
    assert (tables["state"], tables["fix"]) == ("advice", "BRICKD_NAMES=128")


@pytest.mark.ci
@pytest.mark.parametrize("threads", [1, 2])
def test_the_settings_of_one_look_are_enough_for_the_next_start(worker: Start, prefix: str, threads: int) -> None:
    program = """
from threading import Barrier, Thread
together = Barrier(THREADS)
def work():
    with brick.span("work"):
        for number in range(200):
            for layer in range(3):
                with brick.layer(layer), brick.span(f"brick{number}"):
                    with brick.span(f"part{number}"):
                        brick.kernel(f"kernel{number}", grid=(number + 1, layer + 1), block=32)
                        brick.checksum(f"kernel{number}", b"0123", layer=layer)
    together.wait()
many = [Thread(target=work) for _ in range(THREADS)]
for thread in many: thread.start()
for thread in many: thread.join()
pause()
""".replace("THREADS", str(threads))
    small = {"BRICKD_NAMES": "256", "BRICKD_PATHS": "320", "BRICKD_SITES": "64", "BRICKD_LANES": "1"}
    process = started(worker, program, BRICKD_SERVICE="api", **small)
    fixes = {finding["name"]: finding["fix"] for finding in examined() if "api/0" in finding["about"]}
    lost = {name: fix.split() for name, fix in fixes.items() if name.startswith("loss-")}
    settings = dict(fix.split("=") for fix in itertools.chain(*lost.values()))
    names = {"loss-tables", "loss-marks", "loss-sites"} | ({"loss-lanes"} if threads > 1 else set())
    assert lost.keys() == names
    assert len(settings) == len({*itertools.chain(*lost.values())}), "each setting has one value"
    process.go()
    assert process.end() == 0, process.stderr
    process = started(worker, program, BRICKD_SERVICE="api", **small | settings)
    (again,) = [finding["seen"] for finding in examined() if finding["name"].startswith("loss")]
    assert again == "none in 1 segment"
    process.go()
    assert process.end() == 0, process.stderr


@pytest.mark.ci
def test_hostile_names_are_harmless(worker: Start, prefix: str) -> None:
    program = """
    import ctypes
    ctypes.CDLL(None).prctl(15, b"\\x1b[2J\\n$(reboot)")
    brick.init(lanes=1, names=64)
    for number in range(100):
        with brick.span(str(number)): pass
    pause()
    """
    process = started(worker, program, BRICKD_SERVICE="\x1b]0;x; touch y #")
    (SHM / f"{prefix}\x1b[2J\nrm").write_bytes(b"junk")
    (SHM / f"{prefix}\x1b[2J\nln").symlink_to("nowhere")
    screen = brickd("doctor").stdout
    assert "\x1b" not in screen
    assert r"\x1b[2J\nrm" in screen
    assert rf"        rm -r -- '/dev/shm/{prefix}\x1b[2J\nln'" in screen
    assert all(line.startswith(("broken  ", "advice  ", "        ")) for line in screen.splitlines()[:-1])
    findings = examined()
    assert about(findings, "loss-tables", "_]0;x; touch y #/0")["seen"].startswith("_]0;x; touch y #/0: ")
    assert about(findings, "processes", process.pid)


@pytest.mark.ci
def test_findings_with_a_fix_come_first_and_the_others_are_counted(worker: Start, prefix: str) -> None:
    started(worker, BRICKD_SERVICE="api").kill()
    *lines, last = brickd("doctor", COLUMNS="60").stdout.splitlines()
    reported = lines.index(next(line for line in lines if line.startswith("advice  segments-dead")))
    assert len(lines[reported]) <= 60
    assert lines[reported + 1].startswith("        brickd prune  # ")
    fine, checks = (int(word) for word in last.split() if word.isdigit())
    assert len(lines) == 2 * (checks - fine)
    assert last == f"{fine} of {checks} checks fine"
    rows = list(csv.DictReader(io.StringIO(brickd("doctor", "-o", "csv").stdout)))
    assert list(rows[0]) == ["name", "state", "seen", "wanted", "fix", "why", "about"]
    states = [row["state"] for row in rows]
    assert states == sorted(states, key=["broken", "advice", "ok"].index)


@pytest.mark.ci
def test_doctor_reports_a_reader_that_does_not_load(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "broken.py").write_text(
        "import sys\nsys.modules['brickd.shm._reader'] = None\n"
        "from brickd.cli import main\nsys.argv = ['brickd', 'doctor', '--json']\nsys.exit(main())\n"
    )
    result = subprocess.run([sys.executable, "-P", tmp_path / "broken.py"], capture_output=True, text=True, check=False)
    (finding,) = json.loads(result.stdout)["findings"]
    assert (result.returncode, finding["name"], finding["state"]) == (1, "versions", "broken")
    assert "_reader" in finding["seen"]


# ---- programs with their own mounts and namespaces


ELSEWHERE = (
    PRIVATE
    + 'mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=8m")\n'
    + SPANS
    + "report(_core._segment_name())\npause()"
)

# Runs `brickd doctor` in the mounts of a program; the code before it has prepared these mounts.
INSIDE = """
def examine(*before):
    done = subprocess.run([*before, sys.executable, "-P", "-m", "brickd", "doctor", "--json"], stdout=subprocess.PIPE)
    report([done.returncode, json.loads(done.stdout)["findings"]])
"""


@pytest.mark.slow
@needs_namespaces
def test_a_worker_in_another_mount_namespace_is_found(worker: Start) -> None:
    process = started(worker, ELSEWHERE)
    process.go()
    (SHM / process.next_report()).write_bytes(b"another file of that name")
    finding = about(examined(), "shm-namespace", process.pid)
    assert finding["state"] == "broken"
    assert f"pid {process.pid} (python" in finding["seen"]
    started(worker)
    assert about(examined(), "shm-namespace", process.pid)["state"] == "advice"


@pytest.mark.slow
@needs_namespaces
@pytest.mark.parametrize(
    ("mounted", "name", "fix"),
    [
        ('mount(b"tmpfs", b"/dev", b"tmpfs", 0, None)', "shm", "mount -t tmpfs"),
        ('mount(b"tmpfs", b"/dev/shm", b"tmpfs", 1, None)', "shm", "mount -o remount,rw"),
        ('mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=128k")', "shm-room", ""),
        ('mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"nr_inodes=1")', "shm-room", "nr_inodes"),
    ],
)
def test_a_dev_shm_that_workers_cannot_use_is_broken(worker: Start, mounted: str, name: str, fix: str) -> None:
    process = worker(f"{PRIVATE}{mounted}\n{INSIDE}\nexamine()")
    code, findings = process.next_report()
    assert code == 1
    (broken,) = [finding for finding in findings if finding["name"] == name]
    assert broken["state"] == "broken"
    assert fix in broken["fix"]


@pytest.mark.slow
@needs_namespaces
def test_a_dev_shm_that_cannot_be_listed_is_broken(worker: Start, nobody: list[str]) -> None:
    mounted = 'mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=0700")'
    process = worker(f"{PRIVATE}{mounted}\n{INSIDE}\nexamine(*{nobody!r})")
    code, findings = process.next_report()
    (access,) = [finding for finding in findings if finding["name"] == "shm-access"]
    assert (code, access["state"], access["fix"]) == (1, "broken", "chmod 1777 /dev/shm")
    assert access["seen"] == "mode 0700 of user 0"


@pytest.mark.slow
@needs_namespaces
def test_a_dev_shm_without_a_limit_is_ok(worker: Start) -> None:
    process = worker(f'{PRIVATE}mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=0,nr_inodes=0")\n{INSIDE}\nexamine()')
    _, findings = process.next_report()
    (room,) = [finding for finding in findings if finding["name"] == "shm-room"]
    assert (room["state"], room["seen"]) == ("ok", "no limit on its size")


@pytest.mark.slow
@needs_namespaces
def test_a_worker_in_another_pid_namespace_is_ok(worker: Start, prefix: str) -> None:
    unshare = ["unshare", "-p", "-f", "--kill-child", sys.executable, "-c"]
    program = "import brick_agent as brick\nwith brick.span('b'): pass\nprint('x', flush=True)\ninput()"
    environment = os.environ | {"BRICKD_SERVICE": "api"}
    pipe = subprocess.PIPE
    with subprocess.Popen([*unshare, program], stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x\n"
        finding = about(examined(), "pid-namespace", "api/0")
        assert finding["state"] == "ok"
        process.communicate(b"\n")
    assert process.returncode == 0


@pytest.mark.slow
@needs_namespaces
def test_a_worker_in_another_time_namespace_is_ok_and_mentioned(worker: Start, prefix: str) -> None:
    unshare = ["unshare", "-T", "--monotonic", "1000", sys.executable, "-c"]
    program = "import brick_agent as brick\nwith brick.span('b'): pass\nprint('x', flush=True)\ninput()"
    environment = os.environ | {"BRICKD_CLOCK": "monotonic"}
    pipe = subprocess.PIPE
    with subprocess.Popen([*unshare, program], stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x\n"
        finding = about(examined(), "time-namespace", process.pid)
        assert finding["state"] == "ok"
        process.communicate(b"\n")
    assert process.returncode == 0
