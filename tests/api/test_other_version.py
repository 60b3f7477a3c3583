"""Answers of a daemon of another version are used if possible, and are never reported as a defect of brickd."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from importlib import metadata
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest
from faults import Start
from running import running
from test_weights_verb import watching
from verbs import SPANS, brickd, document, started

from brickd.base.paths import runtime
from brickd.client import client
from brickd.client.other_version import Build, _digest, advice, decoded, is_newer, other_version, ours, remark
from brickd.errors import Exit, OtherVersion, WrongQuestion
from brickd.query.orders import StartRecording
from brickd.query.query import to_query

OURS = metadata.version("brickd")
OLDER, NEWER = "0.0.9", "99.0.0"
RESTART = "restart the daemon with this version: brickd down && brickd up -d"
REBUILT = "restart the daemon with this build: brickd down && brickd up -d"
BUILD = ours().sources


@contextmanager
def a_daemon(version: str, answers: Mapping[str, Any], build: str | None = BUILD) -> Iterator[None]:
    """Imitates a daemon of this version and build.

    `answers` has an answer for each path: a document, a list for a stream of events, or bytes for a file.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.removeprefix("/v1").strip("/").partition("?")[0]
            missing = {"error": {"kind": "no_such_path", "message": f"no path {self.path}"}}
            answer = {"": {"version": version, "build": build, "pid": 7}, **answers}.get(path, missing)
            self.send_response(200)
            if isinstance(answer, list):
                body = "".join(f"event: {name}\ndata: {json.dumps(each)}\n\n" for name, each in answer).encode()
            else:
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingUnixStreamServer(str(runtime().socket), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            runtime().socket.unlink()


def code_and_stderr(*arguments: str) -> tuple[int, str]:
    """Return the exit code of a verb, and its output on stderr."""
    ended = brickd(*arguments)
    return ended.returncode, ended.stderr


# ---- the rule


def refused(what: str) -> OtherVersion:
    return other_version("/x", Build(OLDER), what)


def test_a_missing_key_is_named_at_any_depth_of_an_answer() -> None:
    answer = decoded(b'{"schema_version": 1, "workers": [{"name": "api/0"}]}', refused)
    with pytest.raises(OtherVersion, match=rf"^the daemon at /x is brickd {OLDER}, this is brickd {OURS}: its answer "):
        answer["alarms"]
    with pytest.raises(OtherVersion, match=r"has no key 'state' \(restart the daemon with this version: "):
        answer["workers"][0]["state"]
    assert answer.get("alarms") is None


def test_unknown_keys_of_an_answer_are_kept() -> None:
    assert decoded(b'{"later": {"more": [1]}}', refused) == {"later": {"more": [1]}}


@pytest.mark.parametrize("schema", ["2", "0", '"1"', "null", "[]"])
def test_another_schema_is_refused(schema: str) -> None:
    with pytest.raises(OtherVersion, match=r"its answer has schema_version .*, expected 1"):
        decoded(b'{"schema_version": %s}' % schema.encode(), refused)


@pytest.mark.parametrize(
    ("theirs", "ours", "newer"),
    [
        ("0.10.0", "0.9.0", True),
        ("0.9.0", "0.10.0", False),
        ("1.0", "1.0", False),
        ("1.0.1", "1.0", True),
        (None, "1.0", False),
        ("1.0", None, True),
        ("x", "1.0", False),
        ("9" * 5000, "1.0", True),
    ],
)
def test_the_advice_is_to_upgrade_the_older_version(theirs: str | None, ours: str | None, newer: bool) -> None:
    assert is_newer(theirs, ours) == newer
    restart = REBUILT if theirs == ours else RESTART
    assert advice(Build(theirs), Build(ours)) == (f"upgrade this brickd to {theirs}" if newer else restart)


@pytest.mark.ci
def test_two_builds_of_one_version_are_distinguished() -> None:
    assert str(other_version("/x", Build(OURS, "0123"), "it fails")) == (
        f"the daemon at /x is another build of brickd {OURS} (0123, this is {BUILD}): it fails ({REBUILT})"
    )
    assert str(other_version("/x", Build(OURS), "it fails")) == (
        f"the daemon at /x is another build of brickd {OURS}: it fails ({REBUILT})"
    )
    assert str(other_version("/x", Build(OURS, BUILD), "it fails")) == (
        "the daemon at /x: it fails (this is a defect of brickd: please report it)"
    )
    assert remark(Build(OURS, BUILD)) == ""


def test_a_build_is_known_by_its_sources_alone(tmp_path: Path) -> None:
    def build(name: str, **files: str) -> str | None:
        (tmp_path / name / "inner").mkdir(parents=True)
        for file, text in files.items():
            (tmp_path / name / file.replace("inner_", "inner/").replace("_py", ".py")).write_text(text)
        return _digest(str(tmp_path / name))

    one = build("one", a_py="1", inner_b_py="2")
    assert one == build("two", inner_b_py="2", a_py="1", readme="x")
    assert re.fullmatch("[0-9a-f]{12}", one or "")
    others = {
        build("three", a_py="1", inner_b_py="3"),
        build("four", a_py="12", inner_b_py=""),
        build("five", a_py="1", inner_c_py="2"),
        build("six", a_py="1", b_py="2"),
    }
    assert (len(others), one in others, None in others) == (4, False, False)
    assert build("seven", readme="x") is None


# ---- verbs


@pytest.mark.ci
def test_an_older_daemon_without_a_key_is_named_with_both_versions(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    status = document("status")
    del status["silenced"]
    with a_daemon(OLDER, {"status": status}):
        assert code_and_stderr("status") == (
            2,
            f"brickd: the daemon at {runtime().socket} is brickd {OLDER}, this is brickd {OURS}:"
            f" its answer has no key 'silenced' ({RESTART})\n",
        )
        assert document("status") == status, "with --json, a program gets the document as the daemon sent it"


def extended(value: Any) -> Any:
    """Return a document in which every object has one more key."""
    if isinstance(value, dict):
        return {**{key: extended(each) for key, each in value.items()}, "of a later version": {"x": [1]}}
    return [extended(each) for each in value] if isinstance(value, list) else value


@pytest.mark.ci
def test_new_keys_of_a_newer_daemon_are_ignored(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    answers = {verb: document(verb) for verb in ("status", "workers", "bricks", "tree", "hang", "source")}
    with a_daemon(OURS, answers):
        before = [brickd(verb).stdout for verb in answers]
    with a_daemon(NEWER, {verb: extended(answer) for verb, answer in answers.items()}):
        assert [brickd(verb).stdout for verb in answers] == before
        assert all(before)


@pytest.mark.ci
@pytest.mark.parametrize("verb", ["status", "workers", "bricks", "tree", "hang"])
def test_a_verb_without_a_key_works_or_names_the_daemon(worker: Start, verb: str) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    answer = document(verb)
    shown = 0
    for key in answer:
        with a_daemon(OLDER, {verb: {each: value for each, value in answer.items() if each != key}}):
            code, stderr = code_and_stderr(verb)
        assert code == 0 or (code == 2 and f"has no key {key!r}" in stderr and RESTART in stderr), (key, stderr)
        assert "Traceback" not in stderr
        shown += code == 0
    assert 0 < shown < len(answer)


def incomplete(value: Any) -> Iterator[tuple[str, Any]]:
    """For each key of a document, at any depth, yield the key and a copy of the document without it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, {each: kept for each, kept in value.items() if each != key}
            yield from ((missing, value | {key: less}) for missing, less in incomplete(inner))
    elif isinstance(value, list) and value:
        yield from ((missing, [less, *value[1:]]) for missing, less in incomplete(value[0]))


def says_what_to_upgrade(code: int, stderr: str, key: str) -> bool:
    """Return whether the verb refused an answer without this key.

    If it did, its message must name the key and say what to do. There must never be a traceback.
    """
    assert not re.search(r"Traceback|[A-Z]\w*(Error|Exception|Iteration)\b", stderr), (key, stderr)
    if f"the daemon at {runtime().socket} is brickd {OLDER}" not in stderr:
        return False
    assert (code, repr(key) in stderr, RESTART in stderr) == (2, True, True), (key, stderr)
    return True


@pytest.mark.ci
def test_weights_without_a_key_at_any_depth_work_or_name_the_daemon(worker: Start) -> None:
    watching(worker, "0", "1")
    watching(worker, "2", shift=1.0)
    answer = document("weights", code=Exit.DIFFERS)
    refused = Counter[bool]()
    for key, less in incomplete(answer):
        with a_daemon(OLDER, {"weights": less}):
            refused[says_what_to_upgrade(*code_and_stderr("weights"), key)] += 1
    assert refused[True] > 10
    assert refused[False] > 10
    with a_daemon(NEWER, {"weights": answer | {"verdict": "settled"}}):
        code, stderr = code_and_stderr("weights")
    assert (code, stderr.partition(f"is brickd {NEWER}, this is brickd {OURS}: ")[2]) == (
        2, f"this brickd cannot use 'settled' of its answer (upgrade this brickd to {NEWER})\n",
    )  # fmt: skip


def test_a_reason_of_a_newer_daemon_is_shown_as_it_is(worker: Start) -> None:
    watching(worker, "0", "1")
    answer = document("weights")
    answer["workers"][0]["not_comparable"] = {"of another planet": 3}
    with a_daemon(NEWER, {"weights": answer}):
        shown = brickd("weights")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "api/0: 3 tensors not compared: of another planet" in shown.stdout


@pytest.mark.ci
def test_a_recording_without_a_key_at_any_depth_works_or_names_the_daemon(worker: Start, tmp_path: Path) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    with running() as daemon:
        order = to_query(StartRecording(duration=0.01))
        events = list(client.ask("record", order, post=True).events())
        daemon.end()
    assert [name for name, _ in events][:: len(events) - 1] == ["begun", "done"]
    refused = Counter[bool]()
    for number, (name, whole) in enumerate(events):
        for key, less in incomplete(whole):
            stream = [*events[:number], (name, less), *events[number + 1 :]]
            with a_daemon(OLDER, {"record": stream, "record/file": b"a file", "record/remove": {}}):
                code, stderr = code_and_stderr("record", "-o", str(tmp_path / f"{number}.brick"))
            refused[says_what_to_upgrade(code, stderr, key)] += 1
            (tmp_path / f"{number}.brick").unlink(missing_ok=True)
    assert refused[True] > 10


@pytest.mark.ci
@pytest.mark.parametrize("answer", [[], {"recording": "7"}])
def test_a_recording_without_an_event_names_the_daemon_of_another_version(
    tmp_path: Path, prefix: str, answer: object
) -> None:
    out = str(tmp_path / "x.brick")
    with a_daemon(OLDER, {"record": answer}):
        code, stderr = code_and_stderr("record", "-o", out)
    where = f"brickd: the daemon at {runtime().socket}"
    wrong = f"{where} is brickd {OLDER}, this is brickd {OURS}: its answer has no event ({RESTART})\n"
    assert (code, stderr) == (Exit.TROUBLE, wrong)
    with a_daemon(OURS, {"record": answer}):
        code, stderr = code_and_stderr("record", "-o", out)
    assert (code, stderr) == (Exit.NO_DAEMON, f"{where} ended while it answered (start one: brickd up)\n")


@pytest.mark.ci
def test_a_newer_answer_that_cannot_be_shown_is_refused_in_one_line(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    status = document("status") | {"workers": 7}
    with a_daemon(NEWER, {"status": status}):
        code, stderr = code_and_stderr("status")
    assert code == 2
    assert stderr.startswith(f"brickd: the daemon at {runtime().socket} is brickd {NEWER}, this is brickd {OURS}: ")
    assert stderr.endswith(f"(upgrade this brickd to {NEWER})\n")
    assert ("Traceback" in stderr, stderr.count("\n")) == (False, 1)
    with a_daemon(OURS, {"status": status}):
        code, stderr = code_and_stderr("status")
    assert code == 2
    assert "this is a defect of brickd" in stderr, "a daemon of our own build sent it"
    with a_daemon(OURS, {"status": status}, build="0123"):
        code, stderr = code_and_stderr("status")
    assert (code, stderr.count("\n"), stderr.endswith(f" ({REBUILT})\n")) == (2, 1, True)
    assert f"is another build of brickd {OURS} (0123, this is {BUILD}): this brickd cannot use its answer" in stderr


def test_a_defect_before_any_answer_is_not_blamed_on_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKD_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    with a_daemon(NEWER, {"status": {}}):
        assert client.unlike(KeyError("x")) is None
        client.ask("status").document()
        assert NEWER in str(client.unlike(KeyError("x")))


@pytest.mark.usefixtures("prefix")
def test_a_path_missing_in_an_older_daemon_exits_2() -> None:
    with a_daemon(OLDER, {}):
        code, stderr = code_and_stderr("silence")
    assert (code, f"is brickd {OLDER}, this is brickd {OURS}: no path /v1/silence" in stderr) == (2, True)


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_a_query_refused_by_another_version_is_reported_with_both_versions_and_which_to_upgrade() -> None:
    refusal = {"error": {"kind": "wrong_question", "message": "no parameter 'later'"}}
    same = f"is another build of brickd {OURS}"
    for version, build, words in (
        (OLDER, BUILD, f" (the daemon is brickd {OLDER}, this is brickd {OURS}: {RESTART})"),
        (NEWER, BUILD, f" (the daemon is brickd {NEWER}, this is brickd {OURS}: upgrade this brickd to {NEWER})"),
        (OURS, "0123", f" (the daemon {same} (0123, this is {BUILD}): {REBUILT})"),
        (OURS, None, f" (the daemon {same}: {REBUILT})"),
        (OURS, BUILD, ""),
    ):
        with a_daemon(version, {"status": refusal}, build), pytest.raises(WrongQuestion) as caught:
            client.ask("status").document()
        assert str(caught.value) == "no parameter 'later'" + words


@pytest.mark.usefixtures("prefix")
def test_a_path_or_a_key_missing_in_another_build_of_the_same_version_says_to_restart_the_daemon() -> None:
    with a_daemon(OURS, {"status": {"schema_version": 1}}, build=None):
        for verb, what in (("silence", "no path /v1/silence"), ("status", "its answer has no ")):
            code, stderr = code_and_stderr(verb)
            assert (code, stderr.count("\n")) == (2, 1)
            assert f"is another build of brickd {OURS}: {what}" in stderr
            assert stderr.endswith(f" ({REBUILT})\n")


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_a_daemon_reports_the_build_of_its_command() -> None:
    with running() as daemon:
        assert daemon.ask("")["build"] == BUILD == json.loads(brickd("version", "--json").stdout)["build"]


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_the_version_of_a_daemon_of_another_schema_is_unknown() -> None:
    with a_daemon(OLDER, {"": {"schema_version": 2}, "status": {"schema_version": 2}}):
        with pytest.raises(OtherVersion, match="is brickd None, this is brickd"):
            client.ask("status").document()
        with pytest.raises(OtherVersion):
            client.ask("").document()


@pytest.mark.ci
@pytest.mark.usefixtures("prefix")
def test_doctor_accepts_an_incomplete_answer_of_another_version() -> None:
    with a_daemon(NEWER, {"coverage": {"window": {}}}):
        findings = json.loads(brickd("doctor", "--json").stdout)["findings"]
    assert ("fingerprints", "ok") in [(each["name"], each["state"]) for each in findings]
