"""By default, a recording does not contain the values of tensors, but only checksums. They are made with the key of the
service.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from checked_record import CheckedRecord, Tensor
from faults import Start
from running import running
from test_record import record
from test_recorded_redacted import found, recorded
from verbs import brickd

from brickd.analysis.numerics import blame
from brickd.errors import WrongQuestion
from brickd.model.step_texts import StepTexts
from brickd.query.orders import StartRecording
from brickd.query.query import from_query
from brickd.recording.replay import opened
from brickd.shm import records

VALUES = ("min", "max", "mean", "l2")


@pytest.mark.parametrize("by", [pytest.param("with a daemon", marks=pytest.mark.ci), "without a daemon"])
def test_of_tensors_a_recording_has_only_checksums_but_everything_else(worker: Start, tmp_path: Path, by: str) -> None:
    file = tmp_path / "run.brick"
    with running() if by == "with a daemon" else nullcontext() as daemon:
        engine = recorded(worker, file, "--spans", daemon=daemon)
    assert found(engine, [file]) == set(engine.keyed())
    reported = brickd("inspect", "-n", "100", "--json", str(file), "api/0")
    there = json.loads(reported.stdout)
    assert (there["recording"]["values"], there["recording"]["redacted"]) == (False, False)
    assert "redacted" not in reported.stderr
    assert "tokens" not in reported.stderr
    checks = [event["checked"] for event in there["lanes"][0]["events"] if event["checked"]]
    assert [each["output"]["checksum"] for each in checks] == [checksum for checksum, *_ in engine.reported]
    for each in checks:
        assert each["fnv1a"] is None
        assert {tensor[name] for tensor in (each["output"], *each["inputs"]) for name in VALUES} == {None}
        assert (each["output"]["elements"], each["output"]["nan"]) == (40, 0)


@pytest.mark.ci
@pytest.mark.parametrize("by", [pytest.param("with a daemon", marks=pytest.mark.ci), "without a daemon"])
def test_a_recording_with_values_has_everything_and_a_warning(worker: Start, tmp_path: Path, by: str) -> None:
    file = tmp_path / "run.brick"
    with running() if by == "with a daemon" else nullcontext() as daemon:
        engine = recorded(worker, file, "--spans", "--values", daemon=daemon)
    assert found(engine, [file]) == engine.words()
    reported = brickd("inspect", "-n", "100", "--json", str(file), "api/0")
    there = json.loads(reported.stdout)
    assert (there["recording"]["values"], there["recording"]["redacted"]) == (True, False)
    assert (
        "brickd: it has statistics and sketches of tensors: they reveal tokens to anyone with the same weights"
        in reported.stderr
    )
    checks = [event["checked"] for event in there["lanes"][0]["events"] if event["checked"]]
    answer = [(each["fnv1a"], each["output"]["mean"], each["output"]["l2"]) for each in checks]
    assert answer == [(fnv1a, mean, l2) for _, fnv1a, mean, l2, _ in engine.reported]


@pytest.mark.ci
def test_no_file_of_a_set_or_unfetched_recording_has_values(worker: Start, tmp_path: Path) -> None:
    with running() as daemon:
        arguments = ("--max-size", "65536", "--files", "100")
        engine = recorded(worker, tmp_path / "run.brick", *arguments, daemon=daemon, rounds=100)
        assert daemon.process.poll() is None
    files = sorted(tmp_path.glob("run*.brick"))
    assert len(files) > 1
    assert found(engine, files) == set(engine.keyed())
    with opened([str(file) for file in files]) as world:
        assert (world.values, world.redacted) == (False, False)


def test_values_and_redact_exclude_each_other(tmp_path: Path) -> None:
    reported = brickd("record", "--values", "--redact", "-o", str(tmp_path / "run.brick"))
    assert (reported.returncode, reported.stdout) == (2, "")
    assert "'values' contradicts 'redact': give one of them" in reported.stderr
    with pytest.raises(WrongQuestion, match="give one of them"):
        from_query(StartRecording, [("values", "true"), ("redact", "true")])


@pytest.mark.ci
def test_the_report_of_a_recording_names_its_level_of_redaction(worker: Start, tmp_path: Path) -> None:
    for number, (option, words) in enumerate((("--values", "with the values of tensors"), ("--redact", "redacted"))):
        file = tmp_path / f"{number}.brick"
        reported = brickd("record", "-o", str(file), "--duration", "0.05", option)
        assert reported.stdout.splitlines()[0].endswith(f" in 1 file, {words}")
    assert record("-o", str(tmp_path / "run.brick"), "--duration", "0.05")["values"] is False


def test_an_omitted_value_is_none_and_a_zero_is_zero() -> None:
    for fnv1a, shown in ((0, None), (1, 0.0)):
        (record,), _ = records.events(CheckedRecord(Tensor(7, 0.0), (Tensor(8, 0.0),), fnv1a=fnv1a).slots())
        tensors = [records.tensor_document(tensor) for tensor in record["tensors"]]
        assert [tensor[name] for tensor in tensors for name in VALUES] == [shown] * 8
        answer = blame.DecodedFingerprint(0, 0, record).document(StepTexts())
        assert (answer["l2"], answer["fnv1a"]) == (shown, "0000000000000001" if fnv1a else None)
