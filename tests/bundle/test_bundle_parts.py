"""The parts of a bundle, each alone: copies of recordings, documents of the machine, the limits of an archive."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import span_recordings as made
from bundles import archived, valid
from faults import Start
from tapes import forged, read
from verbs import started

from brickd.base.json_values import plain
from brickd.base.paths import runtime
from brickd.bundle import documents, machine_documents, recordings
from brickd.bundle.archive_check import check
from brickd.bundle.bounded_call import bounded_call
from brickd.bundle.document_redaction import OMITTED, DocumentRedaction
from brickd.bundle.manifest import DOCUMENT_BYTES_MAX, MEMBERS_MAX, RECORDING_BYTES_MAX, TOTAL_BYTES_MAX, BundleMember
from brickd.bundle.parts import BundleParts
from brickd.bundle.private_words import DOMAIN, HOST, USER, PrivateWords
from brickd.bundle.recording_copy import copy_file
from brickd.client import client
from brickd.errors import BrickdError, NoDaemon, RecordingRefused
from brickd.recording.replay import opened
from brickd.shm import _reader

WORDS = PrivateWords({"ann": USER})
RECORDS = made.chunk(made.spans((1, 10, 5)))
EVENT = (_reader.CHUNK_EVENTS, made.BEGAN_NS, plain((1, 2, "set", "ann set this", "ann", None, None)).encode())


def copied(folder: Path, content: bytes, words: PrivateWords | None = WORDS) -> bytes:
    """Copy a recording with this content, and return the content of the copy."""
    source, target = folder / "s.brick", folder / "t.brick"
    source.write_bytes(content)
    target.unlink(missing_ok=True)
    copy_file(source, target, words)
    return target.read_bytes()


def recorded(**begun: Any) -> bytes:
    workers = [made.worker("ann/0", names=[("other", 0), ("outer", 0), ("inner", 4), ("ann at /home/eve/x.py", 0)])]
    return made.recording(RECORDS, EVENT, (99, 1, b"ann"), workers=workers, **begun)


def test_a_copy_has_the_same_records_and_no_private_word(tmp_path: Path) -> None:
    before, after = recorded(redacted=True), copied(tmp_path, recorded(redacted=True))
    assert b"ann" in before
    assert b"616e6e" in before  # the name of the service in a header
    assert [word for word in (b"ann", b"616e6e", b"/home/eve") if word in after] == []
    assert read(after).written[-2:] == [
        RECORDS,
        (*EVENT[:2], plain((1, 2, "set", f"{USER} set this", USER, None, None)).encode()),
    ]
    with opened([str(tmp_path / "t.brick")]) as world:
        (worker,) = world.survey().workers
        assert (worker.name, worker.service) == (f"{USER}/0", USER)
        assert worker.reading.names[3] == (f"{USER} at redacted-home/x.py", 0)
        assert world.document()["host"] == HOST


def test_a_copy_keeps_numbers_that_look_like_a_word(tmp_path: Path) -> None:
    summaries = bytes(range(256)) * (len(made.PATHS) * _reader.SUMMARY_BYTES // 256 + 1)
    worker = made.worker(summaries=summaries[: len(made.PATHS) * _reader.SUMMARY_BYTES])
    content = made.recording(workers=[worker], redacted=True)
    (snapshot,) = [json.loads(body) for kind, _, body in read(content).written if kind == _reader.CHUNK_SNAPSHOT]
    word = snapshot["workers"][0]["reading"]["summaries"]
    copied(tmp_path, content, PrivateWords({word: USER, worker.reading.uuid: USER}))
    with opened([str(tmp_path / "t.brick")]) as world:
        assert bytes(world.survey().workers[0].reading.summaries) == bytes(worker.reading.summaries)


def test_only_a_redacted_recording_is_copied_with_redaction(tmp_path: Path) -> None:
    with pytest.raises(RecordingRefused, match="is not redacted: record with --redact, or use --no-redact"):
        copied(tmp_path, recorded())
    content = recorded()
    assert copied(tmp_path, content, None) == content
    with pytest.raises(RecordingRefused, match="has no readable beginning"):
        copied(tmp_path, forged([RECORDS]))


def test_a_recording_in_a_bundle_is_read_by_the_check(tmp_path: Path) -> None:
    content = copied(tmp_path, recorded(redacted=True))
    found = check(str(archived(tmp_path / "b.tar.gz", valid({"recording.brick": content}))))
    assert found.faults == []
    assert found.members["recording.brick"].content == "recording: 1 snapshot, 1 event"
    cut = check(str(archived(tmp_path / "b.tar.gz", valid({"recording.brick": content[:-200]}))))
    assert "has no end" in cut.members["recording.brick"].content or "was cut" in cut.members["recording.brick"].content


def parts(words: PrivateWords | None = WORDS) -> BundleParts:
    return BundleParts(words, DocumentRedaction(b"k" * 32), lambda _: None)


def test_a_document_a_reason_and_a_note_are_redacted() -> None:
    some = parts()
    some.add("a.json", {"source": "daemon", "who": "ann", "diagnosis": "1.5"}, "about", notes=["by ann"], service="ann")
    some.lack("b.json", "ann is away")
    assert json.loads(some.contents["a.json"]) == {"source": "daemon", "who": USER, "diagnosis": OMITTED}  # type: ignore[arg-type]
    (member,), (missing,) = some.members, some.missing
    assert (member.source, member.notes, member.service) == ("daemon", (f"by {USER}",), USER)
    assert missing.reason == f"{USER} is away"
    plain_parts = parts(None)
    plain_parts.add("a.json", {"who": "ann", "diagnosis": "1.5"}, "about")
    assert json.loads(plain_parts.contents["a.json"]) == {"who": "ann", "diagnosis": "1.5"}  # type: ignore[arg-type]


def member(length: int) -> BundleMember:
    return BundleMember("x", length, "", "")


def test_a_member_without_room_is_missing(tmp_path: Path) -> None:
    some = parts(None)
    with (tmp_path / "long").open("wb") as file:
        file.truncate(RECORDING_BYTES_MAX + 1)
    some.add_file("a.brick", tmp_path / "long", "about")
    assert some.missing[-1].reason.endswith("expected at most 256M")
    some.members = [member(TOTAL_BYTES_MAX - 2 * DOCUMENT_BYTES_MAX - 2)]
    some.add("b.json", {}, "about")
    assert some.missing[-1].name == "b.json"
    some.members = [member(1)] * (MEMBERS_MAX - 2)
    (tmp_path / "c").write_bytes(b"c")
    some.add_file("c.brick", tmp_path / "c", "about")
    assert (
        some.missing[-1].reason
        == f"the archive has {MEMBERS_MAX - 2} members with {MEMBERS_MAX - 2}B, and no room for 1B"
    )
    some.members = [member(TOTAL_BYTES_MAX - 2 * DOCUMENT_BYTES_MAX - 3)]
    some.add("d.json", {}, "about")
    assert some.members[-1].name == "d.json"


def test_a_member_may_be_as_long_as_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brickd.bundle.parts.RECORDING_BYTES_MAX", 3)
    some = parts(None)
    for length in (3, 4):
        (tmp_path / "r").write_bytes(b"r" * length)
        some.add_file(f"{length}.brick", tmp_path / "r", "about")
    assert [each.name for each in some.members] == ["3.brick"]
    assert [each.name for each in some.missing] == ["4.brick"]


@pytest.mark.ci
def test_a_document_over_the_limit_is_missing() -> None:
    some = parts(None)
    some.add("a.json", {"x": "y" * DOCUMENT_BYTES_MAX}, "about")
    assert some.missing[-1].reason.endswith("expected at most 32M")


def test_the_environment_has_only_variables_of_brickd() -> None:
    found = machine_documents.environment({"BRICKD_B": "2", "BRICKD_A": "1", "HOME": "/x", "XBRICKD_C": "3"})
    assert found["variables"] == [{"name": "BRICKD_A", "value": "1"}, {"name": "BRICKD_B", "value": "2"}]
    assert {each["value"] for each in machine_documents.without_values(found)["variables"]} == {None}
    assert machine_documents.host(named=False)["name"] is None
    assert machine_documents.host(named=True)["name"] == os.uname().nodename


def test_the_configuration_says_why_it_has_no_settings() -> None:
    found = machine_documents.configuration(["api"], "no daemon")
    assert (found["services"], found["thresholds"], found["why"]) == (None, None, "no daemon")
    assert found["limits"]["open_files"]["soft"] <= (found["limits"]["open_files"]["hard"] or 1 << 62)


def test_an_invalid_prefix_does_not_hide_the_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRICKD_SHM_PREFIX", "/x/")
    assert machine_documents.configuration([], "no daemon")["paths"]["prefix"] is None


def test_without_the_daemon_a_document_comes_from_shared_memory(worker: Start) -> None:
    started(worker)
    query, _ = documents.VERBS["status"]
    found = documents.verb_document("status", query, "it hangs")
    assert (found["document"]["source"], found["missed"]) == ("shared memory", None)
    for verb in ("events", "stragglers", "history"):
        with pytest.raises(NoDaemon, match=r"^it hangs$"):
            documents.verb_document(verb, documents.VERBS[verb][0], "it hangs")
    assert documents.services({"workers": [{"service": "b"}, {"service": "a"}, {"service": "b"}]}) == ["a", "b"]


def test_a_missing_daemon_is_described() -> None:
    answer = documents.DaemonAnswer(*documents.ask_for_daemon())
    assert (answer.silent, answer.document()["answers"]) == (False, False)
    assert "no daemon answers at " in str(answer.why)


@pytest.mark.usefixtures("daemon")
def test_a_daemon_that_answers_is_described() -> None:
    answer = documents.DaemonAnswer(*documents.ask_for_daemon())
    assert answer.document() == {"answers": True, "version": "0.1.0", "build": None, "why": None}
    found = machine_documents.configuration(["gone"], None)
    assert (found["services"], found["why"]) == ([], None)
    assert found["thresholds"]


def test_a_named_recording_is_a_file_or_an_id(tmp_path: Path) -> None:
    (tmp_path / "a.brick").write_bytes(b"")
    assert recordings.find([str(tmp_path / "a.brick")]) == [str(tmp_path / "a.brick")]
    with pytest.raises(BrickdError, match="is neither a file nor the id of a recording"):
        recordings.find(["0123"])


def test_a_host_with_a_domain_has_three_words() -> None:
    words = PrivateWords({}).and_host("h1.a.example")
    assert words.text("h1.a.example, H1, x.a.example, a.example.com") == f"{HOST}, {HOST}, x.{DOMAIN}, {DOMAIN}.com"


@pytest.mark.ci
def test_a_daemon_that_was_silent_is_waited_for_only_briefly() -> None:
    def asked() -> float:
        client.expect_silence()
        begun = time.monotonic()
        assert documents.DaemonAnswer(*documents.ask_for_daemon()).silent
        return time.monotonic() - begun

    with socket.socket(socket.AF_UNIX) as silent:  # it accepts no connection
        silent.bind(os.fspath(runtime().socket))
        silent.listen()
        found = bounded_call(asked, 4, 1000)
    assert found.reason is None
    assert 0.4 < found.value < 4
