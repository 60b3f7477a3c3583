"""scripts/mutants: its changes, its random sample, the tests of a mutant, the verdict on a mutant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from mutation import c_sites, python_sites, sites, tree, trials
from mutation.sites import Site
from mutation.trials import End, Known

pytestmark = pytest.mark.ci  # these tests check a script, not brickd

PYTHON = '''\
"""A module."""

from __future__ import annotations

LIMIT: int = 3


def over(count: int, limit: int = LIMIT) -> bool:
    """Whether."""
    if count < 0:
        raise ValueError(f"{count + 1}")
    total = 0
    total += count
    print(total)
    return total > limit and not limit == 7
'''

C = """\
#include "x.h"
#define TWICE(x) ((x) + 2)
const int table[4] = {1, 2};

/* Whether. */
static int over(int count, int limit)
{
    static const int fixed = 3;
    int room[2] = {0};
    if (count < limit)
        room[0] = count + fixed;
    switch (count) {
    case 3: return !limit;
    }
    return sizeof(room) > 1 && count;
}
"""


def test_python_mutations_are_listed_in_order() -> None:
    assert [(each.line, each.change) for each in python_sites.sites("brickd/x.py", PYTHON)] == [
        (5, "3 -> 4"),
        (10, "if count < 0 -> if not"),
        (10, "count < 0 -> count <= 0"),
        (10, "0 -> 1"),
        (11, "remove raise ValueError(f'{count + 1}')"),
        (12, "0 -> 1"),
        (13, "remove total += count"),
        (14, "remove print(total)"),
        (15, "total > limit and (not limit == 7) -> total > limit or not limit == 7"),
        (15, "total > limit -> total >= limit"),
        (15, "not limit == 7 -> limit == 7"),
        (15, "limit == 7 -> limit != 7"),
        (15, "7 -> 8"),
    ]


def test_the_changes_of_c_are_these() -> None:
    assert [(each.line, each.change) for each in c_sites.sites("x.c", C)] == [
        (9, "0 -> 0 + 1"),
        (10, "if (count < limit) -> if (!(count < limit))"),
        (10, "count < limit -> count <= limit"),
        (11, "remove room[0] = count + fixed;"),
        (11, "0 -> 0 + 1"),
        (11, "count + fixed -> count - fixed"),
        (13, "!limit -> limit"),
        (15, "sizeof(room) > 1 && count -> sizeof(room) > 1 || count"),
        (15, "sizeof(room) > 1 -> sizeof(room) >= 1"),
        (15, "1 -> 0"),
    ]


def outcome(text: str, number: int, *arguments: int) -> object:
    """Return the result of `over`. Its source contains all changes, but only the change with this number is
    selected.
    """
    every = {site.place: site.place + 1 for site in python_sites.sites("brickd/x.py", text)}
    source = python_sites.changed("brickd/x.py", text, every)
    source = source.replace("from brickd._mutant import CHOSEN as _brickd_mutant", f"_brickd_mutant = {number}")
    names: dict[str, object] = {}
    exec(compile(source, "x.py", "exec"), names)
    try:
        return names["over"](*arguments)  # type: ignore[operator]
    except ValueError:
        return "raised"


def test_each_change_of_python_is_selected_by_its_number() -> None:
    calls = ((0,), (1,), (3,), (4,), (-1,), (8, 7))
    assert [outcome(PYTHON, 0, *call) for call in calls] == [False, False, False, True, "raised", False]
    found = {number: [outcome(PYTHON, number, *call) for call in calls] for number in range(1, 14)}
    # mutant 1 changes the result of `over` only at its limit, 4
    assert found[1] == [False, False, False, False, "raised", False]
    assert found[3] == ["raised", False, False, True, "raised", False]
    assert found[5] == [False, False, False, True, False, False]
    assert found[8] == [False, False, False, True, "raised", False], "a mutant that prints less returns the same value"
    assert found[10] == [False, False, True, True, "raised", False]


MAIN = '#include <stdio.h>\nint main(void)\n{\n    printf("%d%d%d\\n", over(1, 2), over(3, 0), over(3, 1));\n}\n'


def test_each_change_of_c_is_selected_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "x.h").write_text("")
    every = {site.place: site.place + 1 for site in c_sites.sites("x.c", C)}
    source = c_sites.changed("x.c", C, every) + MAIN
    include = ROOT / "scripts" / "mutation"
    program = tmp_path / "program"
    warned = ("-Wall", "-Wextra", "-Werror")
    command = ("gcc", *warned, "-I", str(tmp_path), "-I", str(include), "-x", "c", "-", "-o", str(program))
    subprocess.run(command, input=source, text=True, check=True)

    def end_of(number: int) -> str:
        chosen = {"MUTANT_CHOSEN": str(number)}
        return subprocess.run([program], env=chosen, capture_output=True, text=True, check=True).stdout.strip()

    assert end_of(0) == "110"
    assert end_of(7) == "101", "!limit"
    assert end_of(2) == "110", "text that is written to this stream is ignored"
    marks = tmp_path / "marks"
    marks.write_bytes(bytes(len(every) + 1))
    subprocess.run([program], env={"MUTANTS_REACHED": str(marks)}, stdout=subprocess.DEVNULL, check=True)
    assert list(marks.read_bytes()) == [0, *[1] * len(every)]


def test_a_change_with_invalid_c_is_reported_and_skipped(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    for each in (original, copy):
        (each / "src").mkdir(parents=True)
        (each / "src" / "x.c").write_text("int over(int *a, int *b)\n{\n    return a - b > 0;\n}\n")
    (copy / "src" / "brick_mutant.h").write_bytes((tree.HERE / "brick_mutant.h").read_bytes())
    drawn = dict(enumerate(tree.find(original, [original / "src" / "x.c"]), 1))
    assert [each.change for each in drawn.values()] == ["a - b > 0 -> a - b >= 0", "a - b -> a + b", "0 -> 0 + 1"]
    assert tree.change(original, copy, {2: drawn[2]}) == [2]
    assert tree.change(original, copy, drawn) == [2]
    text = (copy / "src" / "x.c").read_text()
    assert ("BRICK_MUTANT(1)" in text, "BRICK_MUTANT(2)" in text, "BRICK_MUTANT(3)" in text) == (True, False, True)


def test_a_change_in_code_for_another_machine_is_reported(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    source = "#ifdef __alpha__\nint one(int a) { return a < 1; }\n#endif\n#define OVER(a) ((a) < 2)\n"
    for each in (original, copy):
        each.mkdir()
        (each / "x.h").write_text(f"{source}static int two(int a) {{ return a < 3 && OVER(a); }}\n")
    (copy / "brick_mutant.h").write_bytes((tree.HERE / "brick_mutant.h").read_bytes())
    drawn = dict(enumerate(tree.find(original, [original / "x.h"]), 1))
    elsewhere = [number for number, site in drawn.items() if site.line == 2]
    assert elsewhere
    assert len(drawn) > len(elsewhere)
    assert tree.change(original, copy, drawn) == elsewhere


@pytest.mark.slow
def test_every_sampled_source_can_be_changed_at_all_its_sites() -> None:
    for path in sites.sources(ROOT):
        language, text = python_sites if path.suffix == ".py" else c_sites, path.read_text()
        found = language.sites(str(path), text)
        if found and path.suffix == ".py":
            compile(language.changed(str(path), text, {each.place: each.place + 1 for each in found}), path, "exec")


def test_a_sample_is_determined_by_its_seed() -> None:
    every = [Site("x.py", place, place, "") for place in range(100)]
    assert sites.draw(every, 10, 1) == sites.draw(list(reversed(every)), 10, 1) != sites.draw(every, 10, 2)
    assert sites.draw(every, None, 1) == sites.draw(every, 100, 1) == every


def test_a_module_is_named_by_the_last_part_of_its_name() -> None:
    assert sites.sources(ROOT, "ledger") == [ROOT / "brickd" / "shm" / "ledger.py"]
    assert {path.name for path in sites.sources(ROOT, "match")} == {"match.c", "match.h", "match.py"}
    with pytest.raises(LookupError, match="no module nothing"):
        sites.sources(ROOT, "nothing")


def test_a_mutant_runs_the_tests_that_reach_it_and_pass_without_it() -> None:
    found = trials.tests_of(
        {
            "tests/test_a.py::test_slow": {"reached": [1, 2], "seconds": 50.0, "passed": True},
            "tests/test_a.py::test_quick": {"reached": [1], "seconds": 5.0, "passed": True},
            "tests/test_roster.py::test_slower": {"reached": [1], "seconds": 20.0, "passed": True},
            "tests/test_roster.py::test_fails": {"reached": [1], "seconds": 1.0, "passed": False},
        }
    )
    assert found.failed == ["tests/test_roster.py::test_fails"]
    assert found.of(1, "brickd/daemon/roster.py") == [
        "tests/test_roster.py::test_slower",
        "tests/test_a.py::test_quick",
    ]
    assert found.of(1, "brickd/reader/roster_type.c") == found.of(1, "agent/src/brick_roster.c") == [
        "tests/test_roster.py::test_slower", "tests/test_a.py::test_quick",
    ]  # fmt: skip
    assert found.of(2, "brickd/daemon/roster.py") == ["tests/test_a.py::test_slow"]
    assert found.of(3, "brickd/daemon/roster.py") == []


def test_tests_named_most_like_the_module_run_first() -> None:
    names = ("tests/test_match.py::test_a", "tests/test_match_rows.py::test_a", "tests/test_brick.py::test_a")
    found = known(*((name, [1], 25.0 - number) for number, name in enumerate(names)))
    assert found.of(1, "brickd/reader/core/match_rows.c") == [names[1], names[0]]
    assert found.of(1, "agent/src/brick_match.c") == [names[1], names[0]]


def known(*of: tuple[str, list[int], float]) -> Known:
    return trials.tests_of({name: {"reached": to, "seconds": took, "passed": True} for name, to, took in of})


def little(folder: Path) -> Known:
    """Return a tree with two tests, and the known facts about these tests."""
    (folder / "tests").mkdir(parents=True)
    (folder / "tests" / "test_little.py").write_text(
        'import os\n\nCHOSEN = os.environ.get("MUTANT_CHOSEN")\n\n\n'
        'def test_one() -> None:\n    assert CHOSEN != "1"\n\n\ndef test_two() -> None:\n    pass\n'
    )
    return known(("tests/test_little.py::test_one", [1, 2], 0.01), ("tests/test_little.py::test_two", [1, 2], 0.01))


def test_a_mutant_is_killed_by_a_failing_test_and_survives_passing_ones(tmp_path: Path) -> None:
    found = little(tmp_path)
    one, two, three = (trials.attempt(tmp_path, Path(sys.executable), found, number, "x.py") for number in (1, 2, 3))
    assert (one.end, two.end, three.end) == (End.KILLED, End.SURVIVED, End.UNREACHED)
    assert "test_one" in one.by
    assert (two.tests, two.reaching, two.by) == (2, 2, "")


def test_every_test_reaches_import_time_code_and_only_its_own_calls(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "changed.py").write_text(
        "from mutation.chosen import CHOSEN\n\nLIMIT = 2 if CHOSEN == 1 else 3\n\n\n"
        "def limit() -> int:\n    return 1 if CHOSEN == 2 else LIMIT\n"
    )
    (tmp_path / "tests" / "test_it.py").write_text(
        "from changed import LIMIT, limit\n\n\n"
        "def test_constant() -> None:\n    assert LIMIT\n\n\ndef test_call() -> None:\n    assert limit()\n"
    )
    path = os.pathsep.join(map(str, (tmp_path, ROOT / "scripts")))
    marks = {"MUTANTS_FOLDER": str(tmp_path), "MUTANTS_COUNT": "3", "PYTHONPATH": path}
    options = ["-q", "-p", "no:cacheprovider", "-p", "mutation.reached", "-c", "/dev/null"]
    command = [sys.executable, "-P", "-m", "pytest", *options, f"--rootdir={tmp_path}", "tests"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | marks, check=True, capture_output=True)
    found = json.loads((tmp_path / "marks-0.json").read_text())
    assert {name.rpartition("::")[2]: each["reached"] for name, each in found.items()} == {
        "test_constant": [1], "test_call": [1, 2],
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1200)  # it builds brickd; next to thirty busy processes, this took more than 600 s
def test_the_mutants_of_a_module_run_and_the_document_has_their_results(tmp_path: Path) -> None:
    options = "--module drain_order --sample 3 --seed 1 --json --tests tests/daemon/test_drain_turns.py"
    command = [f"{ROOT}/scripts/mutants", *options.split(), "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert (answer["seed"], answer["mutants"], answer["killed"] + answer["survived"]) == (1, 3, 3)
    assert answer["killed"] >= 1
    assert all({"file", "line", "change"} <= each.keys() for each in answer["survivors"])
    assert len((tmp_path / "drain_order-3-1.jsonl").read_text().splitlines()) == 3
