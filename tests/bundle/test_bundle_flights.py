"""The recordings of the flight recorder in a bundle: redacted, under their own names, with and without a daemon."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bundles import bundle, contents, documents
from faults import Start
from running import running
from serving import ask
from test_bundle_made import missing
from test_flight_recorder import TURNS, end_over_the_api, flight, folder, named
from test_recording_shelf import id_of
from verbs import document, started

from brickd.base.paths import runtime
from brickd.bundle import make_bundle, recordings
from brickd.bundle.archive_check import check
from brickd.bundle.document_redaction import DocumentRedaction
from brickd.bundle.documents import DaemonAnswer
from brickd.bundle.make_bundle import BundleOrder
from brickd.bundle.parts import BundleParts
from brickd.bundle.private_words import PrivateWords
from brickd.client import client

ALONE = DaemonAnswer("no daemon answers")


def parts(tmp_path: Path, *given: str, words: PrivateWords | None = None, seconds: float | None = 1.0) -> BundleParts:
    """Return the parts with the recordings of the flight recorder."""
    made = BundleParts(words, DocumentRedaction(b"key"), lambda _: None)
    copies = tmp_path / "copies"
    copies.mkdir()
    order = BundleOrder(seconds)
    make_bundle._flights(made, order, given, copies, ALONE)
    return made


def test_each_recording_is_included_under_its_name_unless_it_was_named(prefix: str, tmp_path: Path) -> None:
    paths = [flight(named(number)) for number in range(3)]
    paths[0].rename(tmp_path / "elsewhere.brick")
    paths[0].symlink_to(tmp_path / "elsewhere.brick")
    found = parts(tmp_path, f"{folder()}/./{paths[2].name}")
    assert list(found.contents) == [paths[1].name]
    (content,) = found.contents.values()
    assert isinstance(content, Path)
    assert content.read_bytes() == paths[1].read_bytes()
    assert found.members[0].about.startswith("a recording of the flight recorder, begun 20")


def test_without_recordings_of_the_flight_recorder_nothing_is_missing(prefix: str, tmp_path: Path) -> None:
    found = parts(tmp_path)
    assert (found.members, found.missing) == ([], [])


def test_a_bundle_without_a_recording_has_none_of_the_flight_recorder(prefix: str, tmp_path: Path) -> None:
    flight(named(1))
    found = parts(tmp_path, seconds=None)
    assert (found.members, found.missing) == ([], [])


def test_a_redacted_bundle_refuses_a_recording_that_is_not_redacted(prefix: str, tmp_path: Path) -> None:
    path = flight(named(1))
    found = parts(tmp_path, words=PrivateWords({}))
    assert [(each.name, "is not redacted" in each.reason) for each in found.missing] == [(path.name, True)]


def test_a_recording_is_found_by_its_id(prefix: str) -> None:
    path = flight(named(1))
    assert recordings.find([id_of(path)]) == [os.fspath(path)]


def test_if_the_daemon_does_not_answer_the_directory_is_read(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = flight(named(1))
    asked = list[object]()

    def silent(*arguments: object, **_: object) -> None:
        asked.append(arguments)
        raise client.NoAnswer("silent", "the daemon does not answer")

    monkeypatch.setattr(client, "ask", silent)
    monkeypatch.setattr(client, "_silent", set())
    assert [found for found, _ in recordings.of_flights(silent=True)] == [os.fspath(path)]
    assert (len(asked), client._silent) == (1, {runtime().socket})


@pytest.mark.ci
def test_a_bundle_has_the_recordings_of_the_flight_recorder(worker: Start, prefix: str, tmp_path: Path) -> None:
    victim = started(worker, BRICKD_SERVICE="b")
    process = started(worker, f"count = 40\n{TURNS}", BRICKD_SERVICE="api")
    with running(options=("--flight-recorder",)) as daemon:
        daemon.once("/status", lambda found: len(found["workers"]) == 2)
        victim.kill()
        assert ask(runtime().socket, "/v1/silence", b"id=none").status == 404  # looks for problems now
        daemon.until("recording_began")
        process.go()
        process.paused()
        end_over_the_api(daemon)
        daemon.until("flight_recorded")
        report = bundle(tmp_path / "b.tar.gz", "--duration", "0.1")
    assert (missing(report), check(report["path"]).faults) == ({}, [])
    (name,) = [path.name for path in folder().iterdir()]
    (tmp_path / "f.brick").write_bytes(contents(tmp_path / "b.tar.gz")[name])
    (lane,) = document("inspect", "-n", "100", str(tmp_path / "f.brick"), "api")["lanes"]
    assert [span["elements"] for span in lane["spans"]] == list(range(40))
    events = documents(tmp_path / "b.tar.gz")["events"]["events"]
    assert [name in each["text"] for each in events if each["kind"] == "flight_recorded"] == [True]
