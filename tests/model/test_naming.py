"""The names of workers, and the message for an unknown name."""

from __future__ import annotations

import pytest
from conftest import SHM, readings
from faults import Start
from verbs import SPANS, brickd, started

from brickd.errors import NoSuchWorker
from brickd.model import worker_names, worker_survey
from brickd.model.worker_names import near
from brickd.model.worker_survey import identities, survey
from brickd.model.workers import select


@pytest.mark.ci
def test_names_from_headers_match_a_survey(worker: Start, prefix: str) -> None:
    started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="0").kill()
    for number in ("0", "0.tp3.pp1", ""):
        started(worker, BRICKD_SERVICE="api", BRICKD_WORKER=number)
    started(worker, BRICKD_SERVICE="batch")
    (SHM / f"{prefix}junk").write_bytes(b"no segment")
    surveyed = survey()
    named = [(worker.name, worker.reading.file, worker.reading.pid) for worker in surveyed.workers]
    assert [(name, identity.file, identity.pid) for name, identity in identities()] == named
    assert [name.split("~")[0] for name, _, _ in named] == ["api/0", "api/0.tp3.pp1", "api/0", "api/1", "batch/0"]


@pytest.mark.ci
def test_the_last_of_dead_workers_with_one_name_keeps_it(worker: Start, prefix: str) -> None:
    lives = [started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="0") for _ in range(3)]
    for each in lives[:2]:
        each.kill()
    while_one_lives = [(name, identity.header["pid"]) for name, identity in identities()]
    lives[2].kill()
    assert sorted((name, identity.header["pid"]) for name, identity in identities()) == sorted(while_one_lives)
    assert dict(while_one_lives)["api/0"] == lives[2].pid


@pytest.mark.ci
def test_a_restarted_worker_gets_the_name_of_its_dead_predecessors(worker: Start, prefix: str) -> None:
    for _ in range(2):
        started(worker, BRICKD_SERVICE="api").kill()
    dead = [identity for _, identity in identities()]
    remembered = {identity.uuid: "api/0" for identity in dead}
    again = started(worker, BRICKD_SERVICE="api")
    given = worker_names.named([identity for _, identity in identities()], remembered)
    assert [name for name, identity in given if identity.header["pid"] == again.pid] == ["api/0"]
    assert {name for name, _ in given} == {"api/0", *(f"api/0~{identity.uuid[:6]}" for identity in dead)}


@pytest.mark.ci
def test_a_recording_worker_without_its_lock_is_alive_in_headers_and_survey(
    worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a long wait, because a busy machine may delay the worker
    monkeypatch.setattr(worker_survey, "_WATCH_SECONDS", 60.0)
    process = worker(
        """
        import threading
        brick.init()
        os.close(_core._segment_fd())
        done = threading.Event()
        def record():
            while not done.is_set():
                with brick.span("b"): pass
        thread = threading.Thread(target=record); thread.start()
        pause()
        done.set(); thread.join()
        """
    )
    process.paused()
    assert [identity.pid for _, identity in identities()] == [0]
    assert [worker.reading.pid for worker in survey().workers] == [0]
    process.go()
    process.end()


def test_suggestions_list_substrings_before_similar_spellings() -> None:
    known = ["api/1", "api/10", "apo/1", "brickd-00aa11", "batch/0"]
    assert near("AA11", known) == ["brickd-00aa11"]
    assert near("api/1x", known) == ["api/1", "api/10", "apo/1"]
    assert near("", known) == near("zzz", known) == []
    assert near("api", [f"api/{n}" for n in range(9)]) == ["api/0", "api/1", "api/2"]


def test_an_unknown_name_is_answered_with_similar_names(worker: Start, prefix: str) -> None:
    started(worker, BRICKD_SERVICE="api")
    (reading,) = readings(prefix)
    for verb, typed, meant in (
        ("status", "apl/0", "did you mean api/0"),
        ("status", "zzz", "there are api, api/0 (brickd status lists them)"),
        ("inspect", "apl/0", "did you mean api/0"),
        ("inspect", reading.file[:-2], f"did you mean {reading.file}?"),
        ("inspect", reading.uuid[:9].upper(), f"did you mean {reading.file}?"),
    ):
        answer = brickd(verb, typed)
        assert (answer.returncode, answer.stdout) == (4, ""), verb
        assert meant in answer.stderr
        assert answer.stderr.count("\n") == 1


def test_a_refused_segment_is_suggested_by_its_file(prefix: str) -> None:
    (SHM / f"{prefix}junk").write_bytes(b"no segment")
    answer = brickd("inspect", f"{prefix}jumk")
    assert (answer.returncode, f"did you mean {prefix}junk?" in answer.stderr) == (4, True)
    assert "nothing is recorded here" in brickd("status", "api").stderr


def test_names_are_escaped_in_the_suggestion(worker: Start, prefix: str) -> None:
    started(worker, SPANS, BRICKD_SERVICE="a\u202e$(reboot)")
    answer = brickd("inspect", "a\x1b[2J\n$(reboot)")
    assert answer.returncode == 4
    assert answer.stderr.count("\n") == 1
    assert not {"\x1b", "\u202e"} & set(answer.stderr)
    assert r"\u202e$(reboot)" in answer.stderr


def test_without_own_workers_the_message_mentions_other_users() -> None:
    with pytest.raises(NoSuchWorker, match=r"no worker or service api: .*#4321 has 2 segments \("):
        select([], ["api"], foreign={4321: 2})
    with pytest.raises(NoSuchWorker, match=r"there are b \(brickd status lists them\)$"):
        select([], ["api"], segments=["b"], foreign={4321: 2})


def test_without_similar_names_the_workers_are_counted() -> None:
    with pytest.raises(NoSuchWorker, match=r"there are b0, b1, b2 and 5 more"):
        select([], ["zzz"], segments=[f"b{number}" for number in range(8)])
