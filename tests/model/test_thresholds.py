"""Thresholds are read from text, files and saved states. Invalid ones are refused, and a daemon keeps them."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from conftest import ROOT
from running import UP, running
from verbs import brickd, document

from brickd.base.thresholds import NAMES, Thresholds, assigned, assignments, of_file, row, written
from brickd.errors import WrongQuestion

DEFAULTS = Thresholds()


def refusal(*texts: str) -> str:
    with pytest.raises(WrongQuestion) as refused:
        assigned(texts, DEFAULTS)
    return str(refused.value)


def test_an_assignment_changes_one_threshold_and_default_restores_it() -> None:
    changed = assigned(["stuck_min=2m", "stuck_times = 50"], DEFAULTS)
    assert (changed.stuck_min, changed.stuck_times, changed.stuck_first) == (120, 50, 600)
    assert changed.changed() == {"stuck_min": 120, "stuck_times": 50}
    assert changed.ns("stuck_min") == 120_000_000_000
    assert assigned(["stuck_min=default"], changed).changed() == {"stuck_times": 50}
    assert assigned([], changed) == changed


def test_a_refusal_names_the_threshold_its_value_and_the_expected_range() -> None:
    duration = "expected a duration of 1s to 24h (with ms, s, m or h; without a unit: seconds)"
    assert refusal("stuck_min=soon") == f"stuck_min is 'soon', {duration}"
    assert refusal("stuck_min=0.9s") == f"stuck_min is 0.9, {duration}"
    assert refusal("stuck_times=1e7") == "stuck_times is 10000000.0, expected a number of 1 to 1e+06 (times)"
    assert refusal("stuck_times=nan").startswith("stuck_times is nan, expected")
    assert refusal("stuck") == "'stuck' is not an assignment, expected NAME=VALUE, such as stuck_min=45s"
    assert refusal("stuk=1") == f"no threshold stuk, expected one of {', '.join(NAMES)}"


@pytest.mark.parametrize("name", NAMES)
def test_each_default_and_both_ends_of_each_range_are_accepted(name: str) -> None:
    here = row(name)
    for value in (getattr(DEFAULTS, name), here.least, here.most):
        assert getattr(assigned([f"{name}={written(value, here.unit)}"], DEFAULTS), name) == value
    for beyond in (here.least / 2 - 1, here.most * 2):
        with pytest.raises(WrongQuestion):
            DEFAULTS.with_({name: beyond})


def test_thresholds_survive_formatting_and_saving() -> None:
    changed = assigned(["stuck_min=90s", "stuck_first=1h"], DEFAULTS)
    assert assignments(changed) == ["stuck_min=90s", "stuck_first=1h"]
    assert assigned(assignments(changed), DEFAULTS) == changed
    assert Thresholds.of(changed.changed()) == changed
    assert Thresholds.of({"of_a_later_brickd": 1.0, "stuck_min": 5}).changed() == {"stuck_min": 5}
    with pytest.raises(WrongQuestion):
        Thresholds.of({"stuck_min": -1})


def test_a_file_holds_numbers_and_texts(tmp_path: Path) -> None:
    path = tmp_path / "thresholds.toml"
    path.write_text('# a comment\nstuck_min = "2m"\nstuck_times = 50\nstuck_first = 90.5\n')
    assert of_file(path) == {"stuck_min": 120, "stuck_times": 50, "stuck_first": 90.5}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("stuk = 1", "no threshold stuk"),
        ("stuck_min = true", "stuck_min is True, expected a duration of 1s to 24h"),
        ("stuck_min = [1]", "stuck_min is [1], expected"),
        ("[stuck]\nmin = 1", "no threshold stuck,"),
        ("stuck_min: 3", "expected lines such as stuck_min"),
        ("stuck_min = " + "[" * 20_000, "expected lines such as stuck_min"),
        ("\udcff", "expected lines such as stuck_min"),
        ("#" * 70_000, "is larger than 65536 bytes"),
    ],
)
def test_a_file_with_anything_else_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "thresholds.toml"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(WrongQuestion, match=f"^{re.escape(str(path))}: ") as refused:
        of_file(path)
    assert reason in str(refused.value)


def test_a_daemon_does_not_start_with_an_invalid_file(prefix: str, tmp_path: Path) -> None:
    result = brickd("up", "--thresholds", str(tmp_path / "none"))
    assert (result.returncode, result.stderr) == (
        2,
        f"brickd: {tmp_path / 'none'}: cannot be read: No such file or directory (check the path, its owner and mode)"
        "\n",
    )


@pytest.mark.ci
def test_a_daemon_accepts_saves_and_shows_its_thresholds(prefix: str, tmp_path: Path) -> None:
    path = tmp_path / "thresholds.toml"
    path.write_text('stuck_min = "45s"\n')

    def values() -> dict[str, float]:
        return {each["name"]: each["value"] for each in document("set")["thresholds"]}

    with running(command=(*UP, "--thresholds", str(path))) as daemon:
        assert values() == {each.name: getattr(DEFAULTS, each.name) for each in fields(DEFAULTS)} | {"stuck_min": 45}
        text = brickd("set", "--threshold", "stuck_times=5").stdout.splitlines()
        assert text[:2] == [
            "stuck_min = 45s (default: 30s): A span is reported as stuck only after it has been open for this time.",
            "stuck_times = 5 (default: 20): A span is reported as stuck only after it has been open for this many"
            " times the p99 of its brick.",
        ]
        assert daemon.until("set")["text"] == "thresholds: stuck_min=45s"
        refused = brickd("set", "--threshold", "stuck_times=0")
        assert (refused.returncode, refused.stderr.count("expected a number of 1 to 1e+06")) == (2, 1)
        daemon.end()
    with running() as daemon:
        assert (values()["stuck_min"], values()["stuck_times"]) == (45, 5)
        brickd("set", "--threshold", "stuck_times=default", "--threshold", "stuck_min=default")
        assert values()["stuck_min"] == 30
        daemon.end()


@pytest.mark.parametrize("words", [("api", "--threshold", "stuck_min=1m"), ("--spans", "on")])
def test_thresholds_and_service_settings_are_set_separately(words: tuple[str, ...]) -> None:
    result = brickd("set", *words)
    assert (result.returncode, "brickd set " in result.stderr) == (2, True)


def test_the_documented_thresholds_match_the_code() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    reported = re.findall(r"^\| `(\w+)` \| `(.+?)` \| `(.+?)` to `(.+?)` \| (.*) \|$", page, re.MULTILINE)
    wanted = []
    for each in fields(DEFAULTS):
        here = row(each.name)
        ends = (written(value, here.unit) for value in (getattr(DEFAULTS, each.name), here.least, here.most))
        wanted.append((each.name, *ends, here.meaning))
    assert reported == wanted
