"""The single spans and steps of a recording in Python."""

from __future__ import annotations

import signal
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest
from faults import Start
from running import running
from test_record import recording
from test_result_tables import flattened
from verbs import document, started

import brickd
from brickd.base.timestamps import rfc3339
from brickd.errors import BrickdError, NoSuchWorker, WrongQuestion
from brickd.profile import Profile
from brickd.results.schema import SPANS, STEPS

WORKER = """
brick.init()
pause()
gemm = brick.brick("gemm", category="ffn")
for step in range(3):
    with brick.step(step + 1, kind="decode", rows=4, valid=3), brick.layer(2):
        with gemm(elements=5): pass
pause()
"""


@pytest.fixture
def recorded(worker: Start, tmp_path: Path) -> str:
    """Make a recording of the single spans of two workers."""
    path = str(tmp_path / "run.brick")
    workers = [started(worker, WORKER, BRICKD_SERVICE="api", BRICKD_WORKER=str(number)) for number in range(2)]
    with recording("--spans", "-o", path) as process:
        for each in workers:
            each.go()
            each.paused()
        process.send_signal(signal.SIGINT)
        process.communicate()
    return path


@pytest.mark.ci
def test_spans_are_the_document_of_their_verb(recorded: str) -> None:
    profile = brickd.open(recorded)
    assert profile.spans(top=100).document == document("spans", recorded, "-n", "100")
    some = profile.spans("api/1", brick=("gemm",), step=2, top=7)
    assert some.document == document("spans", recorded, "api/1", "--brick", "gemm", "--step", "2", "-n", "7")
    (row,) = some.to_numpy()
    assert (row["worker"], row["brick"], row["elements"], row["path"]) == ("api/1", "gemm", 5, ["decode", "gemm"])
    assert len(profile.spans(longer=60)) == 0
    assert profile.spans(top=1).document["spans_total"] == 12


def test_steps_are_the_spans_of_kind_step_in_order(recorded: str) -> None:
    profile = brickd.open(recorded)
    steps = profile.steps()
    assert sorted(steps, key=str) == sorted((row for row in profile.spans(top=100) if row["kind"] == "step"), key=str)
    array = steps.to_numpy()
    assert (array["begin_unix_ns"][1:] >= array["begin_unix_ns"][:-1]).all()
    first = array[array["worker"] == "api/0"]
    assert first["step"].tolist() == [f"{step:016x}" for step in (1, 2, 3)]
    assert (first["rows"].tolist(), first["elements"].tolist()) == ([4] * 3, [3] * 3)
    assert first["brick"].tolist() == ["decode"] * 3


@pytest.mark.ci
def test_the_newest_steps_are_kept_and_all_are_counted(recorded: str) -> None:
    profile = brickd.open(recorded)
    newest = profile.steps("api/1", newest=2)
    assert newest.column("step") == [f"{step:016x}" for step in (2, 3)]
    assert newest.document["steps_total"] == 3


@pytest.mark.ci
def test_the_columns_are_the_keys_of_spans_and_steps(recorded: str) -> None:
    profile = brickd.open(recorded)
    for schema, table in ((SPANS, profile.spans()), (STEPS, profile.steps())):
        names = [column.name for column in schema.columns]
        assert len(table) > 0
        assert [[*flattened(row, set(names))] for row in table] == [names] * len(table)
        begin = rfc3339(table[0]["begin_unix_ns"])
        assert f'title="{table[0]["begin_unix_ns"]}">{begin}</td>' in table._repr_html_()


def test_a_recording_without_single_spans_gives_none(worker: Start, tmp_path: Path) -> None:
    started(worker)
    path = str(tmp_path / "totals.brick")
    with recording("-o", path) as process:
        process.send_signal(signal.SIGINT)
        process.communicate()
    profile = brickd.open(path)
    assert (len(profile.spans()), len(profile.steps()), profile.steps().document["spans_recorded"]) == (0, 0, False)


LIVE = """
import select
with brick.step(0): pass
pause()
while not select.select([0], [], [], 0.001)[0]:
    with brick.step(7, rows=4, valid=3), brick.span("gemm"): pass
"""


# without a daemon, `brickd record` records, as in test_record.py
@pytest.mark.parametrize("served", [True, pytest.param(False, marks=pytest.mark.ci)])
def test_spans_of_live_workers_are_recorded_for_some_time(worker: Start, served: bool, tmp_path: Path) -> None:
    for name in ("api", "other"):
        started(worker, LIVE, BRICKD_SERVICE=name).go()
    with running() if served else nullcontext(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(tmp_path))
        spans = brickd.live().spans("api", brick=("gemm",), seconds=0.2, top=3)
        steps = brickd.live().steps(seconds=0.2)
    assert {(row["worker"], row["brick"], row["step"]) for row in spans} == {("api/0", "gemm", f"{7:016x}")}
    assert len(spans) == 3 < spans.document["spans_total"]
    assert spans.words[0].startswith("recorded of api on "), "no other worker records more"
    assert {row["rows"] for row in steps} == {4}, "the step before the recording is not there"
    assert {row["service"] for row in steps} == {"api", "other"}
    assert {row["set"]["spans"] for row in brickd.live().workers()} == {"off"}, "and the workers stopped recording them"
    assert [*tmp_path.iterdir()] == []


def test_why_live_workers_cannot_be_recorded_is_an_error(worker: Start, tmp_path: Path) -> None:
    started(worker, LIVE, BRICKD_SERVICE="api")
    with pytest.raises(NoSuchWorker):
        brickd.live().spans("nobody")
    with pytest.raises(WrongQuestion, match="duration is 0"):
        brickd.live().steps(seconds=0)
    with (
        running(),
        recording("-o", str(tmp_path / "run.brick")),
        pytest.raises(BrickdError, match=r"^a recording is already running"),
    ):
        brickd.live().spans(seconds=0.1)


def test_a_recording_has_its_spans_already(recorded: str) -> None:
    with pytest.raises(WrongQuestion, match=r"^seconds is 1, expected none"):
        brickd.open(recorded).steps(seconds=1)


@pytest.mark.parametrize(("wrong", "kind"), [({"top": 0}, WrongQuestion), ({"longer": -1}, WrongQuestion)])
def test_a_wrong_parameter_of_spans_is_refused(wrong: dict[str, int], kind: type[BrickdError]) -> None:
    with pytest.raises(kind):
        Profile(("run.brick",)).spans(**wrong)  # type: ignore[arg-type]
    with pytest.raises(WrongQuestion, match=r"^newest is 0, expected a whole number of 1 or more$"):
        Profile(("run.brick",)).steps(newest=0)


@pytest.mark.ci
def test_an_unknown_worker_of_a_recording_is_refused(recorded: str) -> None:
    with pytest.raises(NoSuchWorker):
        brickd.open(recorded).steps("nobody")
