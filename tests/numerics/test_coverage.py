"""Screens and JSON show which workers differ and how much was compared, for real workers."""

from __future__ import annotations

import json
import re
import shlex
import signal
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checked_record import CheckedRecord, Tensor
from conftest import Worker
from faults import Compile, Start
from killed_daemon import dying_daemon
from made_up_workers import HOSTILE
from running import UP, Running, running
from serving import Daemon
from test_record import recording
from verbs import brickd, document, started

from brickd.analysis.numerics.online_state import (
    Case,
    Compared,
    DivergentSite,
    KeptEvidence,
    Latest,
    ServiceSite,
    SiteCounts,
)
from brickd.base.paths import runtime
from brickd.errors import Exit
from brickd.model.worker_survey import survey
from brickd.screens.health import Bounds, conditions

# Three rounds of seven sites. One site is not recorded, and one has no inputs. A bad worker differs at one site.
PROGRAM = """
import signal
import numpy as np
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
x = np.arange(12, dtype="f")
brick.brick("attn", category="attention")
with brick.span("forward"):
    pass
while True:
    for step in range(ROUND, ROUND + 3):
        for layer in range(2):
            brick.checksum("mlp", x + step + BAD * (layer == 1 and step % 3 == 1), input=x * step, layer=layer)
        brick.checksum("attn", x + NUMBER, input=x * step)
        brick.checksum("down", x * 2, input=[x + step, x])
        brick.checksum("bare", x)
        brick.checksum("embedding", x, input=x)
        brick.checksum("own", x, input=x + 1000 * NUMBER + step + 7)
    ROUND += 3
    pause()
"""
OF_A_ROUND = 3 * 6


def workers(start: Start, bad: tuple[int, ...], round_: int = 0, *, once: bool = False) -> list[Worker]:
    found = []
    for number, each in enumerate(bad):
        program = f"NUMBER, BAD, ROUND = {number}, {each}, {round_}\n{PROGRAM}" + once * "    BAD = 0\n"
        key = str(runtime().directory / "key")
        found.append(started(start, program, BRICKD_SERVICE="api", BRICKD_WORKER=str(number), BRICKD_KEY_FILE=key))
    return found


def settled(daemon: Running, fingerprints: int) -> dict[str, Any]:
    """Return the answer when all fingerprints are compared."""
    answer: dict[str, Any] = daemon.once(
        "/coverage", lambda answer: [each["input"]["fingerprints"] for each in answer["services"]] == [fingerprints]
    )
    return answer


@pytest.mark.ci
def test_the_outlier_of_three_is_reported_once_and_leads_every_screen(worker: Start, prefix: str) -> None:
    workers(worker, (0, 1, 0))
    with running() as daemon:
        event = daemon.until("diverged")
        assert (event["service"], event["worker"]) == ("api", "api/1")
        assert event["text"].startswith("api/1 differs from the others: mlp layer 1, relative error 0.")
        assert event["text"].endswith("; its inputs were equal")
        assert event["command"] in ("brickd diff api/0 api/1", "brickd diff api/2 api/1")
        reported = settled(daemon, 3 * OF_A_ROUND)
        (finding,) = reported["findings"]
        assert (finding["kernel"], finding["layer"], finding["workers"]) == ("mlp", 1, ["api/1"])
        assert (finding["cases"], finding["outliers"], finding["blame"]) == (1, {"api/1": 1}, "culprit")
        assert finding["first"]["other"]["worker"] == "api/1"
        assert finding["first"]["other"]["checksum"] != finding["first"]["against"]["checksum"]
        assert finding["first"]["other"]["inputs"] == finding["first"]["against"]["inputs"]
        screen = brickd("status").stdout.splitlines()
        assert re.match("! [0-9a-f]{8} api/1 differs from the others since ", screen[1])
        assert screen[1].endswith(f"  {finding['command']}")
        assert screen[2].startswith("numerics  same input: 27 of 54 compared, 1 site differs (")
        unseen = "weights (none given), 9 of stateful kernels, 1 site off, 1 site without inputs"
        assert screen[2].endswith(f" ago) · unseen: {unseen}")
        assert document("status")["diverged"][0]["workers"] == ["api/1"]
        assert brickd("workers").stdout.splitlines()[-1] == screen[1]
        ended = brickd("status", "--check")
        assert ended.returncode == 1
        assert ended.stdout.startswith("unhealthy: mlp of api diverged, expected none (brickd diff api/")
        assert brickd("status", "--check", "--ignore", "diverged").returncode == 0
        assert document("status", "api/0")["problems"] == []
        assert [each["kind"] for each in daemon.ask("/events")["events"]].count("diverged") == 1


def test_only_bricks_are_listed_as_never_compared(worker: Start) -> None:
    program = """
    from array import array
    gemm, hidden = brick.brick("gemm"), brick.brick("hidden")
    source = "@brick.trace\\ndef helper():\\n    with brick.span('inside'): pass"
    exec(compile(source, "model.py", "exec"))
    with brick.step(1, kind="decode"):
        with gemm:
            brick.kernel("flash", 8, 32, elapsed_ns=1000)
            brick.kernel("untimed", 8, 32)
            brick.kernel(gemm, 8, 32)
            brick.transfer("h2d", 64, elapsed_ns=1000)
            brick.needs("elsewhere")
        for layer in (0, 1):
            with brick.layer(layer): helper()
        brick.checksum("mlp", array("f", [1]), input=array("f", [2]))
        with brick.span("mlp"): pass
    hidden.record(1000)
    with brick.span("launched"): pass
    brick.kernel("launched", 8, 32, elapsed_ns=1000)
    pause()
    """
    started(worker, textwrap.dedent(program))
    bricks = {each["brick"] for each in document("coverage")["bricks_without_sites"]}
    assert bricks == {"decode", "gemm", "inside", "hidden", "launched"}


@pytest.mark.ci
def test_coverage_shows_how_much_of_every_site_was_compared(worker: Start, prefix: str) -> None:
    workers(worker, (0, 1, 0))
    with running() as daemon:
        reported = settled(daemon, 3 * OF_A_ROUND)
        assert {(each["kernel"], each["layer"]): each["state"] for each in reported["sites"]} == {
            ("attn", None): "stateful",
            ("mlp", 0): "compared",
            ("mlp", 1): "differs",
            ("bare", None): "no_inputs",
            ("down", None): "compared",
            ("embedding", None): "off",
            ("own", None): "alone",
        }
        assert reported["bricks_without_sites"] == [{"service": "api", "brick": "forward"}]
        # one case, or two if the outlier's fingerprint did not come last
        unlike = reported["sites"][0]["unlike"]
        screen = brickd("coverage", "api", COLUMNS="120").stdout.splitlines()
        assert screen[12].startswith("since ")
        assert screen[1:12] == [
            f"! mlp layer 1: api/1 differs, 1 case examined  {reported['findings'][0]['command']}",
            "unproven  api: weights (none watched)  brickd weights api",
            "KERNEL     LAYERS  BY     STATE                         FINGERPRINTS  COMPARED  UNLIKE  EVICTED",
            f"mlp             1  input  differs                                  9         9       {unlike}        0",
            "embedding       -  -      off: sensitive                           0         0       0        0",
            "bare            -  -      no inputs recorded                       9         0       0        0",
            "attn            -  -      stateful                                 9         0       0        0",
            "own             -  -      no other worker had the same             9         0       0        0",
            "down            -  input  compared                                 9         9       0        0",
            "mlp             0  input  compared                                 9         9       0        0",
            "bricks without compared numbers: forward",
        ]
        assert brickd("coverage", "nobody").returncode == 4


@pytest.mark.ci
def test_a_difference_of_workers_that_ended_is_shown_like_the_check_that_fails_for_it(
    worker: Start, prefix: str
) -> None:
    processes = workers(worker, (0, 1))
    with running() as daemon:
        settled(daemon, 2 * OF_A_ROUND)
        assert "no active problem" not in brickd("status").stdout
        for process in processes:
            process.process.send_signal(signal.SIGTERM)
        daemon.once("/status", lambda answer: not answer["problems"])
        first, line, *_ = brickd("status").stdout.splitlines()
        assert first.endswith("  no active problem")
        wrong, _, following = line.partition("  ")
        assert wrong == "! no longer active, but status --check still fails: mlp of api diverged"
        assert following in ("brickd diff api/0 api/1", "brickd diff api/1 api/0")
        assert brickd("status", "--check").returncode == Exit.DIFFERS
        started(worker, BRICKD_SERVICE="other").kill()
        daemon.once("/status", lambda answer: [each["kind"] for each in answer["problems"]] == ["died"])
        lines = brickd("status").stdout.splitlines()
        assert lines[0].endswith("  1 PROBLEM")
        assert [
            each[:3] for each in lines if "no longer active, but status --check still fails: mlp of api" in each
        ] == ["! n"]
        assert "; 1 died" not in brickd("status").stdout


@pytest.mark.ci
def test_coverage_has_every_key_of_its_schema(worker: Start, prefix: str) -> None:
    with running() as daemon:
        workers(worker, (0, 1))
        reported = settled(daemon, 2 * OF_A_ROUND)
    assert list(reported) == [
        "schema_version", "source", "since", "window", "unlooked", "births_unkept", "services", "evidence", "findings",
        "sites", "bricks_without_sites", "words",
    ]  # fmt: skip
    assert list(reported["window"]) == ["bytes", "fingerprints", "since", "oldest_age_ns"]
    (service,) = reported["services"]
    assert list(service["input"]) == [
        "fingerprints", "compared", "unlike", "differ", "numeric_classes", "unkept", "latest", "age_ns",
    ]  # fmt: skip
    assert list(service["unseen"]) == [
        "sites_off", "sites_closed", "sites_without_inputs", "without_inputs", "alone", "stateful", "evicted", "lost",
        "unreadable",
    ]  # fmt: skip
    assert list(reported["sites"][0]) == [
        "service", "kernel", "layer", "category", "state", "evidence", "numeric_classes", "fingerprints", "compared",
        "stateful", "without_inputs", "alone", "evicted", "unlike", "unknown", "phases",
    ]  # fmt: skip
    assert list(service["row"]) == [
        "rows", "compared", "differ", "unknown", "phases", "layers", "layers_in_turn", "turns", "cycle_ns",
    ]  # fmt: skip
    assert list(reported["findings"][0]) == [
        "service", "kernel", "layer", "category", "evidence", "since", "latest", "cases", "workers", "outliers",
        "contradict_themselves", "blame", "not_finite", "relative_error", "command", "first", "newest",
    ]  # fmt: skip


def test_without_a_daemon_the_contents_of_the_rings_are_compared(worker: Start, prefix: str) -> None:
    workers(worker, (0, 1, 0))
    answer = document("coverage")
    assert (answer["source"], [each["workers"] for each in answer["findings"]]) == ("shared memory", [["api/1"]])
    assert document("status")["numerics"] is None


@pytest.mark.ci
def test_a_recording_is_compared_like_its_workers(worker: Start, prefix: str, tmp_path: Path) -> None:
    three, path = workers(worker, (0, 1, 0)), str(tmp_path / "run.brick")
    with recording("-o", path) as process:
        for each in three:
            each.go()
            each.paused()
        process.send_signal(signal.SIGINT)
        process.communicate()
    answer = document("coverage", path)
    assert (answer["source"], [each["workers"] for each in answer["findings"]]) == ("recording", [["api/1"]])
    states = [each["state"] for each in answer["sites"]]
    assert states == ["differs", "off", "no_inputs", "stateful", "alone", "compared", "compared"]
    assert [each["fingerprints"] for each in answer["sites"]] == [9, 0, 9, 9, 9, 9, 9]


@pytest.mark.ci
@pytest.mark.parametrize("action", ["kill-before", "kill-after", "kill-half"])
def test_daemons_killed_while_saving_findings_lose_none_and_count_none_twice(
    action: str, worker: Start, prefix: str, compiled: Compile
) -> None:
    three = workers(worker, (0, 1, 0))
    for _ in range(2):
        with dying_daemon(compiled, f"{action}:1", "write" if action == "kill-half" else "rename") as daemon:
            daemon.over()
        for each in three:
            each.go()
            each.paused()
    with running() as daemon:
        reported = settled(daemon, 3 * 3 * OF_A_ROUND)
        (finding,) = reported["findings"]
        assert finding["outliers"] == {"api/1": finding["cases"]}
        assert 1 <= finding["cases"] <= 3  # the daemon judges only a few cases of a site at a time
        (service,) = reported["services"]
        assert service["input"]["compared"] == 3 * 3 * 9
        assert reported["since"] <= reported["window"]["since"]
    assert document("status")["diverged"][0]["cases"] == finding["cases"], "the checkpoint has the finding, too"


# The daemon notices a death after five seconds.
@pytest.mark.ci
@pytest.mark.parametrize("end", ["worker_ended", pytest.param("worker_died", marks=pytest.mark.slow)])
def test_a_worker_that_ended_is_named_until_it_is_pruned(worker: Start, prefix: str, end: str) -> None:
    three = workers(worker, (0, 1, 0))
    with running() as daemon:
        daemon.until("diverged")
        three[1].process.send_signal(signal.SIGTERM if end == "worker_ended" else signal.SIGKILL)
        daemon.until(end)
        assert document("status")["diverged"][0]["workers"] == ["api/1"]
        assert brickd("prune").returncode == 0
        daemon.once("/status", lambda answer: not answer["diverged"])
        daemon.end()
    assert document("status")["diverged"] == []


@pytest.mark.ci
def test_a_new_worker_with_the_outliers_name_is_not_taken_for_it(worker: Start, prefix: str) -> None:
    three = workers(worker, (0, 1, 0))
    with running() as daemon:
        daemon.until("diverged")
        three[1].process.send_signal(signal.SIGTERM)
        daemon.until("worker_ended")
        started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="1")
        answer = daemon.once("/status", lambda answer: [each["state"] for each in answer["workers"]].count("live") == 3)
        (name,) = answer["diverged"][0]["workers"]
        assert name.startswith("api/1~")
        assert {each["name"]: each["state"] for each in answer["workers"]}[name] == "ended"
        assert answer["problems"] == [], "the problem ended when its worker ended"
        command = shlex.split(answer["diverged"][0]["command"])
        assert command in (["brickd", "diff", "api/0", name], ["brickd", "diff", "api/2", name])
        assert brickd(*command[1:]).returncode == 1


@pytest.mark.ci
def test_after_a_restart_a_finding_names_the_ended_outlier_and_no_healthy_worker(worker: Start, prefix: str) -> None:
    odd, *healthy = workers(worker, (1, 0, 0))
    with running() as daemon:
        daemon.until("diverged")
        odd.process.send_signal(signal.SIGTERM)
        daemon.until("worker_ended")
        daemon.end()
    with running() as daemon:
        for each in healthy:
            each.go()
            each.paused()
        settled(daemon, 5 * OF_A_ROUND)
        answer = document("diff", "api", code=1)
        assert answer["diverged"] == 1
        assert "api/0" in (answer["first"]["a"]["worker"], answer["first"]["b"]["worker"])
        assert document("diff", "api/1", "api/2")["verdict"] == "identical"


@pytest.mark.slow
def test_a_pruned_worker_is_not_compared_with_later_ones(worker: Start, prefix: str) -> None:
    damaged = workers(worker, (0, 1, 0))
    with running() as daemon:
        daemon.until("diverged")
        for each in damaged:
            each.process.send_signal(signal.SIGTERM)
        daemon.once("/events", lambda answer: [each["kind"] for each in answer["events"]].count("worker_ended") == 3)
        assert brickd("prune").returncode == 0
        daemon.once("/status", lambda answer: not answer["diverged"])
        for healthy in (1, 2):  # a case that was judged last time is not judged again
            workers(worker, (0,))
            settled(daemon, (3 + healthy) * OF_A_ROUND)
        assert document("status")["diverged"] == []
        assert [each["kind"] for each in daemon.ask("/events")["events"]].count("diverged") == 1


@pytest.mark.ci
def test_a_daemon_without_memory_for_fingerprints_reports_that_it_compares_nothing(worker: Start, prefix: str) -> None:
    with running(command=(*UP, "--numerics-bytes", "0")) as daemon:
        workers(worker, (0, 1))
        daemon.until("worker_found")
        assert document("status")["numerics"] is None
        screen = brickd("coverage").stdout.splitlines()
        assert screen[-1] == "nothing is compared: the daemon was started with --numerics-bytes 0"
    assert "x is not a size of 0 to 1TiB (such as 512KiB, 64MiB" in brickd("up", "--numerics-bytes", "x").stderr


# ---- made-up workers


def evidence(worker: str, output: int, kernel: str = "") -> KeptEvidence:
    return KeptEvidence(worker, CheckedRecord(Tensor(output), (Tensor(7),)).slots(), kernel, "")


def made_up(place: ServiceSite, named: str = "api/1", uuids: Sequence[str] = ("u0", "u1")) -> DivergentSite:
    one, odd = uuids
    case = Case(1_700_000_000_000_000_000, evidence(one, 1), evidence(odd, 2))
    return DivergentSite(place, "other", 1, {one: "api/0", odd: named}, {odd: 1}, frozenset(), case, case)


@pytest.fixture
def crowd(worker: Start, daemon: Daemon) -> Daemon:
    """Return a daemon's data with many workers, hundreds of sites and dozens of findings."""
    for number in range(8):
        started(worker, BRICKD_SERVICE="api", BRICKD_WORKER=str(number))
    sites = {ServiceSite("api", f"k{n % 20}", n // 20): SiteCounts("ffn", 10, 0, 10, 1, 0) for n in range(400)}
    uuids = [each.reading.uuid for each in survey().workers[:2]]
    findings = {place: made_up(place, uuids=uuids) for place in list(sites)[:30]}
    daemon.seen = Compared(1, sites=sites, findings=findings, latest={"api": Latest(4000, 1)}, unlooked=7)
    return daemon


def test_the_screen_keeps_its_number_of_lines_whatever_differs(crowd: Daemon) -> None:
    for columns in ("80", "200"):
        screen = brickd("status", COLUMNS=columns).stdout.splitlines()
        assert len(screen) <= 24
        assert all(len(line) <= int(columns) for line in screen if not line.startswith("!"))
        (at,) = (n for n, line in enumerate(screen) if line.startswith("numerics"))
        assert "(and at 29 more sites)" in " ".join(line.strip() for line in screen[1:at])
        assert screen[at - 1].endswith("  brickd diff api/0 api/1")
        assert screen[at].startswith("numerics  same input: 4,000 of 4,000 compared, 30 sites differ")
    screen = brickd("coverage", COLUMNS="100").stdout.splitlines()
    assert len(screen) <= 40
    assert "…25 more sites see the workers: --json" in screen


@pytest.mark.ci
def test_unjudged_sites_and_evicted_differences_are_reported_separately(crowd: Daemon) -> None:
    sites = {place: counts._replace(judged=place.layer < 3) for place, counts in crowd.seen.sites.items()}
    findings = dict([*crowd.seen.findings.items()][:1])
    crowd.seen = replace(crowd.seen, sites=sites, findings=findings, unkept={"api": 466})
    text = brickd("status").stdout.splitlines()[2]
    assert text.startswith("numerics  same input: 4,000 of 4,000 compared, at least 1 site differs")
    states = [each["state"] for each in document("coverage")["sites"]]
    assert [states.count(state) for state in ("differs", "not_judged", "compared")] == [1, 340, 59]
    screen = brickd("coverage", COLUMNS="140").stdout
    assert "  unlike, not judged  " in screen
    why = "they were evicted, or enough others of their site were examined; 340 sites not judged"
    assert screen.splitlines()[-1] == f"7 fingerprints that differ were not examined: {why}"


def test_findings_of_the_same_workers_make_one_problem(crowd: Daemon) -> None:
    answer = document("status")
    assert len([each for each in answer["problems"] if "differs" in each["text"]]) == 1
    assert any(line.startswith("api/1 ") for line in brickd("status").stdout.splitlines())
    assert conditions(answer, None, Bounds())[5].seen == "k0 of api diverged and 29 more sites"


def test_hostile_names_stay_on_their_lines(worker: Start, daemon: Daemon) -> None:
    started(worker, BRICKD_SERVICE="api")
    place, name = ServiceSite("api", HOSTILE, 3), HOSTILE
    daemon.seen = Compared(1, sites={place: SiteCounts(name, 10, 0, 10, 1, 0)}, findings={place: made_up(place, name)})
    for verb in ("status", "coverage"):
        reported = brickd(verb, COLUMNS="100").stdout
        assert all(line.isprintable() for line in reported.splitlines())
        assert json.loads(brickd(verb, "--json").stdout)
        assert brickd(verb, "-o", "csv").returncode == 0


def test_unreadable_evidence_is_left_out(worker: Start, daemon: Daemon) -> None:
    started(worker, BRICKD_SERVICE="api")
    place = ServiceSite("api", "k", 3)
    broken = Case(1, KeptEvidence("u0", b"", "", ""), KeptEvidence("u1", b"x" * 64, "", ""))
    daemon.seen = Compared(1, findings={place: made_up(place)._replace(first=broken, newest=broken)})
    (finding,) = document("coverage")["findings"]
    assert (finding["blame"], finding["relative_error"], finding["first"]) == (None, None, None)
    assert brickd("status").returncode == 0


def test_without_workers_there_is_nothing_to_compare(daemon: Daemon) -> None:
    assert not survey().workers
    assert brickd("coverage").stdout.startswith("nothing to compare: ")
    assert Path(runtime().directory).is_dir()


@pytest.mark.ci
def test_evicted_fingerprints_of_a_finding_are_compared_from_its_evidence(worker: Start, prefix: str) -> None:
    rounds = 8  # so few rounds that the smallest window holds all records
    with running(command=(*UP, "--numerics-bytes", "1")) as daemon:
        two = workers(worker, (0, 1), once=True)
        daemon.once("/status", lambda answer: answer["diverged"])
        for _ in range(rounds):
            for each in two:
                each.go()
                each.paused()
        settled(daemon, 2 * (rounds + 1) * OF_A_ROUND)
        (found,) = document("status")["diverged"]
        answer = document(*shlex.split(found["command"])[1:], code=1)
        assert (answer["verdict"], answer["first"]["kernel"], answer["first"]["layer"]) == ("diverged", "mlp", 1)
        assert answer["coverage"]["evicted"] > 0


def test_a_closed_site_is_distinguished_from_a_silent_one(worker: Start, prefix: str) -> None:
    program = 'brick.take(brick.brick("mlp", "closed"), b"", layer=1); brick.take(brick.brick("norm"), b"")'
    started(worker, program + "\npause()")
    answer = document("coverage")
    states = {(each["kernel"], each["layer"]): each["state"] for each in answer["sites"]}
    assert states == {("mlp", 1): "closed", ("norm", None): "silent"}
    assert [each["unseen"]["sites_closed"] for each in answer["services"]] == [1]
    lines = brickd("coverage").stdout.splitlines()
    assert "1 site closed" in lines[0]
    assert [line.split()[:2] for line in lines if "closed: compiled or copied by torch" in line] == [["mlp", "1"]]
