"""The names of workers, and the message for an unknown name."""

from __future__ import annotations

import pytest
from conftest import SHM, readings
from faults import Start
from verbs import SPANS, brickd, started

from brickd.errors import NoSuchWorker
from brickd.model import worker_names, workers
from brickd.model.worker_names import near
from brickd.model.workers import identities, select, survey


def test_the_headers_alone_name_everybody_as_a_survey_does(worker: Start, prefix: str) -> None:
    started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="0").kill()
    for number in ("0", "0.tp3.pp1", ""):
        started(worker, BRICKD_SERVICE="api", BRICKD_WORKER=number)
    started(worker, BRICKD_SERVICE="batch")
    (SHM / f"{prefix}junk").write_bytes(b"no segment")
    surveyed = survey()
    named = [(worker.name, worker.reading.file, worker.reading.pid) for worker in surveyed.workers]
    assert [(name, who.file, who.pid) for name, who in identities()] == named
    assert [name.split("~")[0] for name, _, _ in named] == ["api/0", "api/0.tp3.pp1", "api/0", "api/1", "batch/0"]


def test_of_dead_workers_that_had_one_name_the_last_keeps_it(worker: Start, prefix: str) -> None:
    lives = [started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="0") for _ in range(3)]
    for each in lives[:2]:
        each.kill()
    while_one_lives = [(name, who.header["pid"]) for name, who in identities()]
    lives[2].kill()
    assert sorted((name, who.header["pid"]) for name, who in identities()) == sorted(while_one_lives)
    assert dict(while_one_lives)["api/0"] == lives[2].pid


def test_one_that_is_started_again_has_the_name_that_the_dead_are_remembered_by(worker: Start, prefix: str) -> None:
    for _ in range(2):
        started(worker, BRICKD_SERVICE="api").kill()
    dead = [who for _, who in identities()]
    remembered = {who.uuid: "api/0" for who in dead}
    again = started(worker, BRICKD_SERVICE="api")
    given = worker_names.named([who for _, who in identities()], remembered)
    assert [name for name, who in given if who.header["pid"] == again.pid] == ["api/0"]
    assert {name for name, _ in given} == {"api/0", *(f"api/0~{who.uuid[:6]}" for who in dead)}


def test_a_worker_without_its_lock_that_still_records_is_alive_to_both(
    worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_WATCH_SECONDS", 60.0)  # on a busy machine the worker may wait long for a processor
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
    assert [who.pid for _, who in identities()] == [0]
    assert [worker.reading.pid for worker in survey().workers] == [0]
    process.go()
    process.end()


def test_what_was_typed_finds_what_holds_it_before_what_is_spelled_nearly_so() -> None:
    known = ["api/1", "api/10", "apo/1", "brickd-00aa11", "batch/0"]
    assert near("AA11", known) == ["brickd-00aa11"]
    assert near("api/1x", known) == ["api/1", "api/10", "apo/1"]
    assert near("", known) == near("zzz", known) == []
    assert near("api", [f"api/{n}" for n in range(9)]) == ["api/0", "api/1", "api/2"]


def test_a_name_that_nobody_has_is_answered_with_those_that_come_near(worker: Start, prefix: str) -> None:
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


def test_a_segment_that_was_refused_is_offered_by_its_file(prefix: str) -> None:
    (SHM / f"{prefix}junk").write_bytes(b"no segment")
    answer = brickd("inspect", f"{prefix}jumk")
    assert (answer.returncode, f"did you mean {prefix}junk?" in answer.stderr) == (4, True)
    assert "nothing is recorded here" in brickd("status", "api").stderr


def test_names_of_both_sides_are_escaped_in_the_answer(worker: Start, prefix: str) -> None:
    started(worker, SPANS, BRICKD_SERVICE="a\u202e$(reboot)")
    answer = brickd("inspect", "a\x1b[2J\n$(reboot)")
    assert answer.returncode == 4
    assert answer.stderr.count("\n") == 1
    assert not {"\x1b", "\u202e"} & set(answer.stderr)
    assert r"\u202e$(reboot)" in answer.stderr


def test_where_we_have_no_worker_a_name_may_be_one_of_another_users() -> None:
    with pytest.raises(NoSuchWorker, match=r"no worker or service api: .*#4321 has 2 segments \("):
        select([], ["api"], foreign={4321: 2})
    with pytest.raises(NoSuchWorker, match=r"there are b \(brickd status lists them\)$"):
        select([], ["api"], segments=["b"], foreign={4321: 2})


def test_the_rest_is_counted_where_nothing_comes_near() -> None:
    with pytest.raises(NoSuchWorker, match=r"there are b0, b1, b2 and 5 more"):
        select([], ["zzz"], segments=[f"b{number}" for number in range(8)])
