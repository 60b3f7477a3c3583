"""`brickd set --fingerprints` and `--sites`: which steps and sites workers record."""

from __future__ import annotations

import fcntl
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlencode

import pytest
from conftest import SHM, readings
from epochs import drawn, give
from faults import Start, counts, exact
from forge import field, golden
from hypothesis import given
from hypothesis import strategies as st
from recorded import events
from running import Running, running
from serving import Daemon, ask
from verbs import brickd, document, started

from brickd.base.paths import runtime
from brickd.query.orders import Wish
from brickd.shm import _reader, sampling
from brickd.shm.segment_copy import Reading
from brickd.state import checkpoint
from brickd.state.daemon_state import Memory

STEPS = 64
# Does all steps in each round; from the second round on, the worker has one more site.
PROGRAM = f"""
import numpy as np
x = np.ones(4, "f")
sites = [("layers.*.mlp", 0), ("layers.*.mlp", 1), ("norm", None)]
brick.init()
pause()
while True:
    for number in range({STEPS}):
        with brick.step(number), brick.span("forward"):
            for name, layer in sites:
                brick.checksum(name, x, input=x, layer=layer)
    sites[3:] = [("layers.*.attn", 0)]
    pause()
"""
Site = tuple[str, int]
FIRST = ("layers.*.mlp", 0)
MLP, NORM, ATTN = {FIRST, ("layers.*.mlp", 1)}, {("norm", -1)}, {("layers.*.attn", 0)}


class Served:
    """A worker that does a round of steps on request."""

    def __init__(self, start: Start, number: int, **environment: str) -> None:
        more = {"BRICKD_SERVICE": "api", "BRICKD_WORKER": str(number), "BRICKD_EVENTS": "65536"}
        self.number, self.process, self.seen = number, started(start, PROGRAM, **more, **environment), 0

    def reading(self) -> Reading:
        prefix = os.environ["BRICKD_SHM_PREFIX"]
        return next(each for each in readings(prefix) if each.header["index"] == self.number)

    def round(self, daemon: Running | None = None) -> dict[Site, set[int]]:
        """Do one round in an epoch of its own, and return the recorded steps, keyed by site.

        If a daemon runs, it is suspended during the round, because it would free the slots of the ring.
        """
        with daemon.stopped() if daemon is not None else nullcontext():
            give(self.reading().file)
            self.process.go()
            self.process.paused()
            of = self.reading()
            found = [each for each in events(of) if each["kind"] == "checked" and each["sequence"] > self.seen]
        self.seen = max((each["sequence"] for each in found), default=self.seen)
        steps: dict[Site, set[int]] = {}
        for each in found:
            site = of.sites[each["site"]]
            assert site is not None
            steps.setdefault((of.name(site.name), site.layer), set()).add(each["step"])
        return steps

    @property
    def control(self) -> bytes:
        """Return the settings that the operator made, without the epoch."""
        with (SHM / self.reading().file).open("rb", buffering=0) as file:
            content = bytearray(os.pread(file.fileno(), 4096, _reader.CONTROL))
        at, _, size = field("control", "epoch")
        content[at : at + size] = bytes(size)
        return bytes(content)


def at(sites: set[Site], one_in: int = 1) -> dict[Site, set[int]]:
    """Return, for each of the sites, the steps that this rate selects."""
    return {site: {step for step in range(STEPS) if one_in == 1 or drawn(step, one_in)} for site in sites}


def message(*arguments: str) -> str:
    ended = brickd("set", *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def filtered(daemon: Running, worker: str, site: int) -> None:
    """Wait until the daemon has excluded a site in a worker; the daemon already knows the site."""

    def so(answer: dict[str, Any]) -> bool:
        return len(answer["sites"]) > site and answer["sites"][site]["left_out"]

    daemon.once(f"/inspect/{worker}", so)


@pytest.mark.ci
def test_settings_reach_running_workers_and_new_sites_until_the_daemon_ends(worker: Start, prefix: str) -> None:
    with running() as daemon:
        one = Served(worker, 0)
        daemon.until("worker_found")
        before = one.control
        assert one.round(daemon) == at(MLP | NORM)
        reported = message("api", "--fingerprints", "1/8", "--sites", "*.mlp", "--sites", "head")
        assert reported == "api: spans off, recording on, fingerprints 1/8, sites *.mlp, head in 1 worker\n"
        found = one.round(daemon)
        assert {site: found[site] for site in found.keys() - ATTN} == at(MLP, 8), (
            "only sites that the daemon does not know yet are missing"
        )
        filtered(daemon, "api/0", 3)
        assert one.round(daemon) == at(MLP, 8)
        daemon.end()
        assert one.control == before
        assert one.round() == at(MLP | NORM | ATTN)


@pytest.mark.ci
def test_settings_override_the_configuration_of_new_workers(worker: Start, prefix: str) -> None:
    with running() as daemon:
        one = Served(worker, 0)
        daemon.until("worker_found")
        message("api", "--fingerprints", "1/8", "--sites", "*.mlp")
        two = Served(worker, 1, BRICKD_FINGERPRINTS="1/2")
        daemon.until("worker_found", daemon.until("set")["number"])
        assert two.round(daemon)[FIRST] == at(MLP, 8)[FIRST], "the setting applies from the first step on"
        two.round(daemon)
        filtered(daemon, "api/1", 3)
        assert two.round(daemon) == at(MLP, 8)

        message("api", "--sites", "all")
        assert two.round(daemon) == at(MLP | NORM | ATTN, 8)
        assert brickd("set", "api").stdout.endswith("fingerprints 1/8, sites all in 2 workers\n")
        message("api", "--fingerprints", "off")
        assert (one.round(daemon), two.round(daemon)) == ({}, {})
        message("api", "--fingerprints", "all")
        assert (one.round(daemon), two.round(daemon)) == 2 * (at(MLP | NORM | ATTN),)
        message("api", "--fingerprints", "default", "--sites", "norm")
        assert (one.round(daemon), two.round(daemon)) == (at(NORM), at(NORM, 2))
        assert [counts(each.reading())["forward"] for each in (one, two)] == [3 * STEPS, 7 * STEPS]
        assert all(exact(each.reading()) for each in (one, two))


@pytest.mark.ci
def test_settings_are_shown_next_to_the_initial_configuration(worker: Start, prefix: str) -> None:
    with running() as daemon:
        one = Served(worker, 0, BRICKD_FINGERPRINTS="1/4")
        daemon.until("worker_found")
        one.round()
        (entry,) = document("workers")["workers"]
        usual = {"spans": "off", "recording": "on", "fingerprints": "default", "filtered": False}
        assert (entry["set"], entry["configured"]) == (usual, {"fingerprints": "1/4"})
        assert "recording on, started with fingerprints 1/4\n" in brickd("inspect").stdout

        answer = document("set", "api", "--fingerprints", "1/16", "--sites", "norm")
        wanted = {"spans": "off", "recording": "on", "fingerprints": "1/16", "sites": ["norm"], "workers": 1, "deaf": 0}
        assert {key: answer[key] for key in wanted} == wanted
        assert document("set", "api", "--spans", "on")["sites"] == ["norm"], "other settings do not change"
        message("api", "--spans", "off")
        event = daemon.until("set")
        assert event["text"] == "spans off, recording on, fingerprints 1/16, sites norm for 1 worker"
        (entry,) = document("workers")["workers"]
        thinned = usual | {"fingerprints": "1/16", "filtered": True}
        assert (entry["set"], entry["configured"]) == (thinned, {"fingerprints": "1/4"})
        inside = document("inspect")
        assert inside["control"]["fingerprints"] == "1/16"
        assert [each["left_out"] for each in inside["sites"]] == [True, True, False]
        shown = "recording on, fingerprints 1/16, some sites left out, started with fingerprints 1/4\n"
        assert shown in brickd("inspect").stdout
        assert "  live, set " in brickd("workers", COLUMNS="200").stdout


@pytest.mark.ci
def test_coverage_names_the_excluded_sites_and_how_to_include_them(worker: Start, prefix: str) -> None:
    with running() as daemon:
        one = Served(worker, 0)
        daemon.until("worker_found")
        message("api", "--fingerprints", "off", "--sites", "norm")
        one.round()
        filtered(daemon, "api/0", 1)
        answer = document("coverage")
        assert [(each["kernel"], each["state"]) for each in answer["sites"]] == [
            ("layers.*.mlp", "left_out"), ("layers.*.mlp", "left_out"), ("norm", "silent"),
        ]  # fmt: skip
        assert answer["services"][0]["thinned"] == {
            "fingerprints": "off", "instrumented": False, "workers": 1, "of": 1,
        }  # fmt: skip
        screen = brickd("coverage").stdout
        assert "no fingerprints are recorded (brickd set api --fingerprints all)\n" in screen
        assert "layers.*.mlp     0-1  -   left out: brickd set" in screen

        two = Served(worker, 1, BRICKD_FINGERPRINTS="1/64")
        daemon.until("worker_found", daemon.until("set")["number"])
        two.round()
        message("api", "--fingerprints", "default", "--sites", "all")
        line = next(each for each in brickd("coverage").stdout.splitlines() if each.startswith("fingerprints are "))
        assert (
            line
            == "fingerprints are recorded only in one step of 64, in 1 of 2 workers (brickd set api --fingerprints all)"
        )
        message(*shlex.split(line[:-1].partition("brickd set ")[2]))
        assert document("coverage")["services"][0]["thinned"] is None


# A worker that records like a part of an instrumented model, but without torch.
PART = """
import numpy as np
from brick_agent._core import _watched
x = np.ones(4, "f")
def checked(): brick.checksum("mlp", x, input=x)
mlp = _watched(lambda: None, brick.brick("mlp"), None, checked, 2**32 // 64)
brick.init()
with brick.step(1): brick.checksum("norm", x)
pause()
with brick.step(1): mlp()
pause()
"""


@pytest.mark.ci
def test_coverage_shows_the_default_rate_of_instrumented_models(worker: Start, prefix: str) -> None:
    def line() -> str | None:
        screen = brickd("coverage").stdout.splitlines()
        return next((each for each in screen if each.startswith("fingerprints are recorded")), None)

    with running() as daemon:
        process = started(worker, PART, BRICKD_SERVICE="api", BRICKD_WORKER="0")
        daemon.until("worker_found")
        assert line() is None
        process.go()
        process.paused()
        recorded = "fingerprints are recorded only in one step of 64, for instrumented models"
        assert line() == f"{recorded} (brickd set api --fingerprints all)"
        assert document("coverage")["services"][0]["thinned"] == {
            "fingerprints": "1/64", "instrumented": True, "workers": 1, "of": 1,
        }  # fmt: skip
        message("api", "--fingerprints", "1/8")
        assert line() == "fingerprints are recorded only in one step of 8 (brickd set api --fingerprints all)"
        message("api", "--fingerprints", "all")
        assert line() is None


def kept() -> Memory:
    memory = checkpoint.load(runtime().checkpoint)
    assert memory is not None
    return memory


@pytest.mark.ci
def test_settings_of_a_killed_daemon_are_reported_and_restored(worker: Start, prefix: str) -> None:
    one = Served(worker, 0)
    with running() as daemon:
        daemon.until("worker_found")
        one.round()
        message("api", "--fingerprints", "1/8", "--sites", "norm")
        daemon.once("/workers", lambda _: kept().wishes == {"api": Wish(False, False, "1/8", ("norm",))})
        daemon.kill()
    problem = "a daemon that was killed had changed which fingerprints 1 worker records", "brickd up -d"
    assert problem in [(each["text"], each["command"]) for each in document("status")["problems"]]
    found = {each["name"]: each for each in document("doctor", code=0)["findings"]}["fingerprints-set"]
    assert (found["state"], found["seen"], found["fix"]) == ("advice", "set in api/0", "brickd up -d")
    assert one.round() == at(NORM | ATTN, 8)
    with running() as daemon:
        assert brickd("set", "api").stdout.endswith("fingerprints 1/8, sites norm in 1 worker\n")
        filtered(daemon, "api/0", 3)
        assert one.round(daemon) == at(NORM, 8)
        assert document("status")["problems"] == []


def test_an_older_checkpoint_has_no_fingerprint_settings() -> None:
    assert Wish.of([True, False]) == Wish(True, False, "default", ())
    assert Wish.of([True, False, "1/16", ["a", "b"]]) == Wish(True, False, "1/16", ("a", "b"))


@contextmanager
def living(name: str, image: bytes) -> Iterator[int]:
    """Yield a segment with a live worker."""
    (SHM / f".{name}").write_bytes(image)
    with open(SHM / f".{name}", "r+b", buffering=0) as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, _reader.LOCK_WORKER)
        os.rename(SHM / f".{name}", SHM / name)
        yield file.fileno()


@pytest.mark.ci
def test_workers_of_an_older_agent_are_reported_as_not_supporting_it(prefix: str) -> None:
    with living(f"{prefix}old", golden("1.3")) as file, running() as daemon:
        daemon.until("worker_found")
        before = os.pread(file, 4096, _reader.CONTROL)
        text = message("golden", "--fingerprints", "1/16", "--sites", "block").splitlines()
        assert text == [
            "golden: spans off, recording on, fingerprints 1/16, sites block in 1 worker",
            "1 worker cannot obey: its brick-agent is too old, and records all steps and sites",
        ]
        assert document("set", "golden")["deaf"] == 1
        assert os.pread(file, 4096, _reader.CONTROL) == before
        assert len(message("golden", "--fingerprints", "default", "--sites", "all").splitlines()) == 1


RATE = "off, all, default, or 1/N: one step of every N (N up to 1000000)"


@pytest.mark.parametrize("words", ["1/0", "2/3", "1/", "0.5", "1/1000001", "some", "", "1/1_6", "1/\u0661"])
def test_an_invalid_rate_is_refused(daemon: Daemon, words: str) -> None:
    ended = brickd("set", "api", "--fingerprints", words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"{words} is not {RATE}" in ended.stderr
    answer = ask(runtime().socket, "/v1/set", urlencode({"service": "api", "fingerprints": words}).encode())
    assert (answer.status, RATE in answer.document["error"]["message"]) == (400, True)


@pytest.mark.parametrize("patterns", [[""], ["x" * 257], ["x"] * 65])
def test_invalid_or_too_many_patterns_are_refused(daemon: Daemon, patterns: list[str]) -> None:
    ended = brickd("set", "api", *(word for each in patterns for word in ("--sites", each)))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "up to 64 patterns of kernels' names, each of at most 256 characters" in " ".join(ended.stderr.split())


# ---- rates and bitmaps


@given(st.integers(1, sampling.OF_MAX))
def test_a_rate_survives_formatting_and_parsing(of: int) -> None:
    rate = sampling.rate_of(f"1/{of}")
    assert rate == (_reader.RATE_ALL if of == 1 else 2**32 // of)
    assert sampling.rate_of(sampling.words_of(rate)) == rate
    assert of > 2**16 or sampling.words_of(rate) == ("all" if of == 1 else f"1/{of}")


@given(st.integers(2, _reader.RATE_ALL))
def test_any_rate_can_be_formatted(rate: int) -> None:
    assert sampling.words_of(rate)


NAMES = st.text("ab.*[]!?-\n", max_size=4)


@given(st.lists(st.none() | NAMES, max_size=200), st.lists(NAMES, min_size=1, max_size=4))
def test_a_site_is_excluded_where_no_pattern_matches_its_kernel(names: list[str | None], patterns: list[str]) -> None:
    bits = sampling.left_out(names, patterns)
    for number, name in enumerate(names):
        wanted = name is None or any(fnmatchcase(name, pattern) for pattern in patterns)
        assert bits >> number & 1 == (not wanted)
    assert bits >> len(names) == 0


BITS = st.sets(st.integers(0, _reader.SITES_MAX - 1), max_size=9).map(
    lambda found: sum(1 << number for number in found)
)


@given(BITS, BITS)
def test_only_the_words_from_the_first_to_the_last_difference_are_written(before: int, after: int) -> None:
    page, wanted = (bytearray(bits.to_bytes(_reader.SITES_MAX // 8, "little")) for bits in (before, after))
    at, words = sampling.changed(before, after)
    if words:
        assert at % 8 == len(words) % 8 == 0
        assert page[at : at + 8] != words[:8]
        assert page[at + len(words) - 8 : at + len(words)] != words[-8:]
    page[at : at + len(words)] = words
    assert page == wanted
    as_words = [int.from_bytes(wanted[at : at + 8], "little") for at in range(0, len(wanted), 8)]
    assert sampling.bits_of(as_words) == after
